"""Dead letters: messages that a service could not handle. List, show, retry, drop."""

from __future__ import annotations

import json
import secrets
from typing import Annotated, Any

from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode
from anchorwatch.codec.plain import plain
from anchorwatch.core.errors import BadInput, Damaged, NotFound
from anchorwatch.core.letters import SHOWN, WAITING, Action, DeadLetter, LetterState, Verb, ordered
from anchorwatch.core.times import iso
from anchorwatch.journal.letters import LetterJournal, find_message
from anchorwatch.topology.subjects import MESH
from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, Field

from anchorwatch_gateway.errors import CONFLICT
from anchorwatch_gateway.guard import by
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.requests import (
    KEY_HEADER,
    Body,
    Filter,
    Key,
    Page,
    PartsDep,
    SessionFilter,
    WindowDep,
    WorkspaceDep,
)

router = APIRouter(prefix="/api/dead-letters", tags=["dead letters"])

CONTENT_BYTES_MAX = 64 * 1024
CURSOR_DIGITS_MAX = 18


class LetterError(BaseModel):
    """Why its handler failed last."""

    code: str
    text: str


class LetterMessage(BaseModel):
    """Where the message is stored."""

    stream: str
    sequence: int
    subject: str
    at: str


class LetterAction(BaseModel):
    """An order of a person."""

    verb: Verb
    by: str
    at: str
    note: str


class Letter(BaseModel):
    """A message that a service could not handle."""

    id: str = Field(description="SERVICE-ID")
    workspace: str
    service: str
    handler: str = Field(description="what it is for its handler: event, command, session, record")
    session: str | None
    state: LetterState
    tries: int = Field(description="failures since the last order")
    openings: int = Field(description="how often it was opened for people")
    first_at: str
    last_at: str
    due_at: str | None = Field(description="when it is retried")
    error: LetterError
    message: LetterMessage
    actions: list[LetterAction]


class LetterDetail(Letter):
    """A dead letter with the content of its message."""

    content: Any = Field(
        description="a record, JSON or text; above 64 KiB its beginning as text; null if it is gone"
    )
    gone: bool = Field(description="true: the message does not exist any more")


class DropLetter(Body):
    """Why a dead letter is dropped."""

    note: str = Field("", max_length=1000)


LetterId = Annotated[str, Path(max_length=200, description="SERVICE-ID, as the list shows it")]

# ---------------------------------------------------------------- routes


@router.get("")
async def list_dead_letters(
    parts: PartsDep,
    workspace: WorkspaceDep,
    window: WindowDep,
    state: Filter = None,
    service: Filter = None,
    session: SessionFilter = None,
) -> Page[Letter]:
    """List messages that could not be handled, by the time of their last change; those of the mesh in every workspace."""
    if state is not None and state not in SHOWN:
        raise BadInput(f"unknown state {state[:80]!r}", hint=f"known: {', '.join(SHOWN)}")
    after, descending = _cursor(window.cursor), window.order == "desc"
    await parts.letters.refresh()
    found = [
        (head, letter)
        for letter, head in parts.letters.visible(parts.clock.now_ms())
        if letter.address.workspace in (workspace, MESH)
        and state in (None, letter.state)
        and service in (None, letter.address.service)
        and session in (None, letter.address.session)
    ]
    found.sort(key=lambda each: each[0], reverse=descending)
    if after is not None:
        found = [each for each in found if (each[0] < after if descending else each[0] > after)]
    data = [_row(letter) for _, letter in found[: window.limit]]
    return Page(data=data, next=str(found[window.limit - 1][0]) if len(found) > window.limit else None)


@router.get("/{letter}")
async def get_dead_letter(parts: PartsDep, workspace: WorkspaceDep, letter: LetterId) -> LetterDetail:
    """Show a dead letter with the content of its message."""
    found = await _find(parts, workspace, letter)
    content, gone = None, False
    try:
        content = content_of(await find_message(parts.bus, found.address))
    except NotFound:
        gone = True
    return LetterDetail(**dict(_row(found)), content=content, gone=gone)


@router.post("/{letter}/retry", status_code=202, responses=CONFLICT)
async def retry_dead_letter(
    parts: PartsDep, workspace: WorkspaceDep, letter: LetterId, response: Response, key: Key = None
) -> Letter:
    """Handle the message again, with a full series of tries."""
    changed, response.headers[KEY_HEADER] = await order(parts, workspace, letter, "retry", key, "")
    return changed


@router.post("/{letter}/drop", responses=CONFLICT)
async def drop_dead_letter(
    parts: PartsDep,
    workspace: WorkspaceDep,
    letter: LetterId,
    response: Response,
    key: Key = None,
    body: DropLetter | None = None,
) -> Letter:
    """Drop the message: it is not retried."""
    note = body.note if body is not None else ""
    changed, response.headers[KEY_HEADER] = await order(parts, workspace, letter, "drop", key, note)
    return changed


# ---------------------------------------------------------------- orders and counts


async def order(
    parts: Parts, workspace: str, letter_id: str, verb: Verb, key: str | None, note: str
) -> tuple[Letter, str]:
    """Write a person's order into the letter; returns (the letter, the order's key).

    Raises:
        NotFound: there is no such letter, or its message is gone. Refused, IdempotencyConflict, Unavailable.
    """
    letter = await _find(parts, workspace, letter_id)
    action = Action(verb, by(), parts.clock.now_ms(), key or secrets.token_urlsafe(18), note)
    if verb == "retry" and letter.address.handler != "session" and ordered(letter, action) is not None:
        await find_message(parts.bus, letter.address)
    journal = LetterJournal(parts.bus, parts.writer, by="gateway")
    filed = await journal.change(
        letter.address, lambda now: ordered(now, action) if now is not None else None, action.at_ms
    )
    if filed.letter is None:
        raise _unknown(letter_id)
    return _row(filed.letter), action.key


async def counts(parts: Parts) -> dict[tuple[str, str], int]:
    """The number of letters by (service, state), in all workspaces.

    Raises:
        Unavailable.
    """
    await parts.letters.refresh()
    found: dict[tuple[str, str], int] = {}
    for letter, _ in parts.letters.visible(parts.clock.now_ms()):
        key = (letter.address.service, letter.state)
        found[key] = found.get(key, 0) + 1
    return found


def content_of(stored: Stored) -> Any:  # noqa: ANN401 - any message
    """The content of a message as far as it can be read: a record, JSON, or text; above 64 KiB its beginning as text."""
    try:
        record = decode(stored.payload)
        content = plain({"kind": record.kind, "writer": record.writer, "body": record.body})
    except Damaged:
        text = stored.payload.decode("utf-8", "replace")
        try:
            content = plain(json.loads(text))
        except (ValueError, RecursionError):
            content = text
    whole = json.dumps(content, ensure_ascii=False)
    return content if len(whole.encode()) <= CONTENT_BYTES_MAX else f"{whole[: CONTENT_BYTES_MAX // 4]}…"


async def _find(parts: Parts, workspace: str, letter_id: str) -> DeadLetter:
    await parts.letters.refresh()
    for letter, _ in parts.letters.visible(parts.clock.now_ms()):
        if letter.address.workspace in (workspace, MESH) and letter.address.letter_id == letter_id:
            return letter
    raise _unknown(letter_id)


def _unknown(letter_id: str) -> NotFound:
    return NotFound(
        f"there is no dead letter {letter_id[:160]}", hint="`anchorwatch dead-letters` lists them"
    )


def _cursor(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdecimal()):
        raise BadInput("the cursor is not of this list", hint="use `next` of the previous page, unchanged")
    return int(cursor[:CURSOR_DIGITS_MAX])


def _row(letter: DeadLetter) -> Letter:
    address = letter.address
    return Letter(
        id=address.letter_id,
        workspace=address.workspace,
        service=address.service,
        handler=address.handler,
        session=address.session or None,
        state=letter.state,
        tries=letter.tries,
        openings=letter.openings,
        first_at=iso(letter.first_at_ms),
        last_at=iso(letter.last_at_ms),
        due_at=iso(letter.due_at_ms) if letter.state in WAITING else None,
        error=LetterError(code=letter.fault.code, text=letter.fault.text),
        message=LetterMessage(
            stream=address.stream,
            sequence=address.sequence,
            subject=address.subject,
            at=iso(address.time_ms),
        ),
        actions=[
            LetterAction(verb=each.verb, by=each.by, at=iso(each.at_ms), note=each.note)
            for each in letter.actions
        ],
    )
