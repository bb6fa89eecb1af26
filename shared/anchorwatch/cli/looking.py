"""Finding one thing by its name."""

from __future__ import annotations

from typing import Any

from anchorwatch.cli.api import PAGE_MAX, Api
from anchorwatch.core.errors import NotFound
from anchorwatch.core.names import check_name, parse_call


def name(session: str) -> str:
    """A session's name, checked here: it becomes a part of an address.

    Raises:
        BadInput: it is none.
    """
    return check_name(session, "session name")


def session(api: Api, given: str) -> dict[str, Any]:
    """A session, as the gateway shows it.

    Raises:
        NotFound: there is none of that name.
    """
    found: dict[str, Any] = api.get(f"/api/sessions/{name(given)}")
    return found


def call(api: Api, text: str) -> dict[str, Any]:
    """One call by its printed id.

    Raises:
        BadInput: it is no call id.
        NotFound: there is no such call.
    """
    of, ident = parse_call(text)
    wanted = f"{of}/{ident}"
    cursor = None
    while True:
        page = api.get("/api/effects", session=of, turn=ident.run, cursor=cursor, limit=PAGE_MAX)
        for effect in page["data"]:
            if effect["call"] == wanted:
                return dict(effect)
        cursor = page["next"]
        if cursor is None:
            raise NotFound(
                f"there is no call {wanted}", hint=f"`anchorwatch effects --session {of}` lists them"
            )
