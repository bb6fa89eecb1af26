"""What routes share: their parameters, the base of request bodies, and pages of lists.

Dependencies are coroutines although they wait for nothing: the framework runs a plain function in a thread, for each request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

from anchorwatch.core.errors import Unavailable
from anchorwatch.core.names import SessionRef, check_name
from fastapi import Depends, Header, Path, Query, Request
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from anchorwatch_gateway.parts import Answer, Parts

SEQUENCE_MAX = 2**53
"""The largest integer that every JSON reader keeps exact."""
PAGE_BYTES_MAX = 512 * 1024
AS_OF_HEADER = "Anchorwatch-As-Of"
"""The journal sequence up to which an answer is complete."""
KEY_HEADER = "Idempotency-Key"

KEY_PATTERN = r"^[\x21-\x7e][\x20-\x7e]{0,254}$"
TOKEN_PATTERN = r"^[A-Za-z0-9_-]{1,64}$"
EVENT_TYPE_PATTERN = r"^[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,7}$"
EVENT_ID_PATTERN = r"^[\x21-\x7e]{1,128}$"
LAST_ID_PATTERN = r"^[0-9]{1,16}$"
PLAN_PATTERN = r"^[0-9a-f]{64}$"
NOT_BLANK = r"\S"
FORMS = {
    NOT_BLANK: "more than white space",
    KEY_PATTERN: "1-255 printable ASCII characters, the first not a space",
    TOKEN_PATTERN: "1-64 letters, digits, '_' or '-'",
    EVENT_TYPE_PATTERN: "1-8 words of letters, digits, '_' and '-' with dots between, such as instance.dead",
    EVENT_ID_PATTERN: "1-128 printable ASCII characters without a space",
    LAST_ID_PATTERN: "a journal sequence",
    PLAN_PATTERN: "64 hexadecimal digits: `plan` of the preview",
}
"""What each pattern allows, in words."""

T = TypeVar("T")

# Described here, enforced by the guard.
TOKEN = HTTPBearer(
    auto_error=False, scheme_name="token", description="`anchorwatch credentials api` prints the token."
)

# ---------------------------------------------------------------- parameters


async def get_parts(request: Request) -> Parts:
    parts: Parts = request.app.state.parts
    return parts


PartsDep = Annotated[Parts, Depends(get_parts)]


async def get_workspace(
    parts: PartsDep,
    workspace: Annotated[str | None, Query(description="another workspace than the default one")] = None,
) -> str:
    return check_name(parts.settings.workspace if workspace is None else workspace, "workspace name")


WorkspaceDep = Annotated[str, Depends(get_workspace)]


async def get_ref(
    workspace: WorkspaceDep, session: Annotated[str, Path(description="the session's name")]
) -> SessionRef:
    return SessionRef(workspace, check_name(session, "session name"))


RefDep = Annotated[SessionRef, Depends(get_ref)]

Filter = Annotated[str | None, Query(max_length=64)]
SessionFilter = Annotated[str | None, Query(max_length=64, description="only of this session")]
TurnFilter = Annotated[str | None, Query(max_length=64, description="only of this turn: id or run number")]
Limit = Annotated[int, Query(ge=1, le=200, description="entries on a page, at most")]
Cursor = Annotated[str | None, Query(max_length=400, description="`next` of the previous page, unchanged")]
Order = Annotated[Literal["asc", "desc"], Query(description="oldest first, or newest first")]
AtLeast = Annotated[
    int | None,
    Query(ge=0, le=SEQUENCE_MAX, description="wait until the journal was read up to this sequence"),
]
Key = Annotated[
    str | None,
    Header(
        alias=KEY_HEADER,
        min_length=1,
        max_length=255,
        pattern=KEY_PATTERN,
        description="repeating the request under this key has no further effect; without one, a key is made and returned",
    ),
]


@dataclass(frozen=True, slots=True)
class Window:
    """Which part of a list, and how new it must be."""

    limit: int
    cursor: str | None
    order: Literal["asc", "desc"]
    at_least: int | None


async def get_window(
    limit: Limit = 50, cursor: Cursor = None, order: Order = "asc", at_least: AtLeast = None
) -> Window:
    return Window(limit, cursor, order, at_least)


WindowDep = Annotated[Window, Depends(get_window)]


def sent_json(request: Request) -> Any:  # noqa: ANN401 - any JSON value
    """The body as the client sent it, which an idempotency key is bound to; ``{}`` without one."""
    return getattr(request.state, "json", None) or {}


# ---------------------------------------------------------------- bodies


class Body(BaseModel):
    """A request body. Unknown fields are refused: a misspelt option that is ignored is a trap."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Reason(Body):
    """Why something is ordered; it is recorded in the journal."""

    reason: str = Field("", max_length=500)


PriorityName = Literal["P0", "P1", "P2"]
PRIORITIES: dict[str, Literal[0, 1, 2]] = {"P0": 0, "P1": 1, "P2": 2}


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


TurnName = Annotated[str, BeforeValidator(_as_text), StringConstraints(min_length=1, max_length=64)]
"""A turn's id or run number, as text or as a number."""

# ---------------------------------------------------------------- answers

# In the model of an answer, a field without a default is always there; one with a default may be absent.


Clipped = Annotated[bool, Field(description="texts were cut to fit into a page")]


class Page(BaseModel, Generic[T]):
    """One page of a list. ``next``: the cursor of the next page; null: this is the last."""

    data: list[T]
    next: str | None


def answers(model: object, description: str = "Successful Response") -> dict[int | str, dict[str, Any]]:
    """Describes what a route answers that passes on another service's JSON.

    Such an answer is not validated at run time: services of two releases run side by side during an upgrade.
    The tests compare every answer with its description.
    """
    return {200: {"model": model, "description": description}}


async def read(parts: Parts, verb: str, params: Mapping[str, Any], at_least: int | None = None) -> Answer:
    """What memory answers, read at least as far as this gateway has told any client.

    Raises:
        NotFound, BadInput: memory says so. Unavailable: memory is away, or has not read up to ``at_least``.
    """
    wanted = max(at_least or 0, parts.seen.sequence)
    answer = await parts.memory.ask(verb, {**params, "at_least": wanted})
    if at_least is not None and answer.as_of < at_least:
        raise Unavailable(
            f"the projections have been read up to {answer.as_of}, not {at_least}",
            hint="try again, or ask for a lower sequence",
        )
    return answer


async def read_page(parts: Parts, verb: str, window: Window, filters: Mapping[str, Any]) -> Answer:
    """One page of the list ``verb``; a filter of None does not filter. Raises as `read`."""
    params = {name: value for name, value in filters.items() if value is not None}
    params |= {"limit": window.limit, "order": window.order}
    if window.cursor is not None:
        params["cursor"] = window.cursor
    return await read(parts, verb, params, window.at_least)


def respond(answer: Answer) -> JSONResponse:
    """Pass on what memory answered."""
    return JSONResponse(answer.result, headers={AS_OF_HEADER: str(answer.as_of)})


async def respond_page(parts: Parts, verb: str, window: Window, filters: Mapping[str, Any]) -> JSONResponse:
    return respond(await read_page(parts, verb, window, filters))


def page_of(rows: Sequence[T], window: Window, key: Callable[[T], str]) -> Page[T]:
    """The page of ``rows`` that ``window`` asks for, in the order of ``key``, which is unique.

    The cursor is the key of a page's last entry, so it stays valid when that entry is removed.
    """
    descending = window.order == "desc"
    keyed = sorted(((key(row), row) for row in rows), key=lambda each: each[0], reverse=descending)
    if window.cursor is not None:
        after = window.cursor
        keyed = [each for each in keyed if (each[0] < after if descending else each[0] > after)]
    count = _fitting([row for _, row in keyed[: window.limit]])
    data = [row for _, row in keyed[:count]]
    return Page(data=data, next=keyed[count - 1][0] if len(keyed) > count else None)


def _fitting(rows: Sequence[object]) -> int:
    """How many of ``rows``, from the first on, fit into a page; at least one."""
    size = 0
    for count, row in enumerate(rows):
        text = row.model_dump_json() if isinstance(row, BaseModel) else json.dumps(row, ensure_ascii=False)
        size += len(text.encode())
        if count and size > PAGE_BYTES_MAX:
            return count
    return len(rows)
