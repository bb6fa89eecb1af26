"""Verbs on effects: list and show calls, and resolve one whose outcome is unknown."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anchorwatch.cli.render import Column
from anchorwatch.cli.verb import APP, Cli, Key, Limit, Note, OfSession, OfState, noun, verb
from anchorwatch.core.errors import NotFound
from anchorwatch.core.names import parse_call

if TYPE_CHECKING:
    from anchorwatch.cli.api import Api

PATH = "/api/effects"
PAGE_MAX = 200
Call = Annotated[str, typer.Argument(metavar="CALL", help="SESSION/RUN.STEP.N.", show_default=False)]
COLUMNS = (
    Column("call"),
    Column("tool"),
    Column("state"),
    Column("attempts"),
    Column("owner"),
    Column("decided", "decided_at"),
    Column("ended", "ended_at"),
    Column("blocks", lambda row: row.get("blocks") or None),
    Column("result", "text|error"),
)

EFFECTS = noun(APP, "effects", "List or show effects, or resolve one with an unknown outcome.", word="show")


class Verdict(StrEnum):
    """What a person found out."""

    DONE = "done"
    NOT_DONE = "not-done"


@verb(EFFECTS, "list")
def list_effects(cli: Cli, *, session: OfSession = None, state: OfState = None, limit: Limit = 100) -> None:
    """List the calls and their outcomes, newest last."""
    found = cli.api.pages(PATH, limit, newest=True, session=session, state=state)
    of, in_state = f" of {session}" if session else "", f" in state {state}" if state else ""
    cli.rows(found, COLUMNS, f"no effects{of}{in_state}")


@verb(EFFECTS)
def show(cli: Cli, call: Call) -> None:
    """Show one call and its outcome."""
    cli.fields(find(cli.api, call))


@verb(EFFECTS)
def resolve(
    cli: Cli,
    call: Call,
    verdict: Annotated[
        Verdict, typer.Argument(metavar="done|not-done", help="Whether it was done.", show_default=False)
    ],
    *,
    note: Note = "",
    key: Key = None,
) -> None:
    """Resolve an unknown outcome, once; this frees its resource."""
    parse_call(call)
    body = {"call": call, "verdict": verdict.value, "note": note}
    done = cli.api.post(f"{PATH}/resolve", body, key=key)
    again = "; already resolved before" if done.get("replayed") else ""
    cli.say(
        done,
        f"{call} resolved as {verdict.value} by {done['by']} (journal sequence {done['sequence']}){again}",
    )


def find(api: Api, text: str) -> dict[str, Any]:
    """One call by its printed id.

    Raises:
        BadInput: it is not a call id.
        NotFound: the call does not exist.
    """
    session, ident = parse_call(text)
    wanted = f"{session}/{ident}"
    cursor = None
    while True:
        page = api.get(PATH, session=session, turn=ident.run, cursor=cursor, limit=PAGE_MAX)
        for effect in page["data"]:
            if effect["call"] == wanted:
                return dict(effect)
        cursor = page["next"]
        if cursor is None:
            hint = f"`anchorwatch effects --session {session}` lists the calls"
            raise NotFound(f"call {wanted} does not exist", hint=hint)
