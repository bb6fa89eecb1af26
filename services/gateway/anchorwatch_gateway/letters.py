"""Dead letters: messages that no service could handle, shown to people, who decide."""

from __future__ import annotations

import json
import secrets
from typing import Any

from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode
from anchorwatch.codec.plain import plain
from anchorwatch.core.errors import BadInput, Damaged, NotFound
from anchorwatch.core.letters import SHOWN, WAITING, Action, DeadLetter, Verb, ordered
from anchorwatch.core.times import iso
from anchorwatch.journal.letters import LetterJournal, find_message

from anchorwatch_gateway.caller import by
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.reading import Window
from anchorwatch_gateway.replies import Page

CONTENT_BYTES_MAX = 64 * 1024


async def page(parts: Parts, workspace: str, window: Window, filters: dict[str, str | None]) -> Page:
    """One page of letters, by the time of their last change.

    Raises:
        BadInput: a state or a cursor that there is not. Unavailable.
    """
    state = filters["state"]
    if state is not None and state not in SHOWN:
        raise BadInput(f"there is no state {state[:80]!r}", hint=f"one of {', '.join(SHOWN)}")
    after = _cursor(window.cursor)
    await parts.letters.refresh()
    found = [
        (head, letter)
        for letter, head in parts.letters.shown(parts.clock.now_ms())
        if letter.address.workspace == workspace and _matches(letter, filters)
    ]
    found.sort(key=lambda each: each[0], reverse=window.order == "desc")
    if after is not None:
        found = [each for each in found if (each[0] < after if window.order == "desc" else each[0] > after)]
    data = [show(letter) for _, letter in found[: window.limit]]
    return Page(data=data, next=str(found[window.limit - 1][0]) if len(found) > window.limit else None)


async def one(parts: Parts, workspace: str, letter_id: str) -> dict[str, Any]:
    """A letter with its message's content; that is null, and ``gone``, where the message is no more.

    Raises:
        NotFound, Unavailable.
    """
    letter = await _find(parts, workspace, letter_id)
    try:
        content = content_of(await find_message(parts.bus, letter.address))
    except NotFound:
        return {**show(letter), "content": None, "gone": True}
    return {**show(letter), "content": content, "gone": False}


async def order(
    parts: Parts, workspace: str, letter_id: str, verb: Verb, key: str | None, note: str
) -> tuple[dict[str, Any], str]:
    """Write a person's order into the letter; returns (the letter, the order's key).

    Raises:
        NotFound: there is no such letter, or its message is no more. Refused, IdempotencyConflict, Unavailable.
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
    return show(filed.letter), action.key


async def counts(parts: Parts) -> dict[tuple[str, str], int]:
    """How many letters there are, by (service, state), in all workspaces.

    Raises:
        Unavailable.
    """
    await parts.letters.refresh()
    found: dict[tuple[str, str], int] = {}
    for letter, _ in parts.letters.shown(parts.clock.now_ms()):
        key = (letter.address.service, letter.state)
        found[key] = found.get(key, 0) + 1
    return found


def show(letter: DeadLetter) -> dict[str, Any]:
    """A letter as programs get it."""
    address = letter.address
    return {
        "id": address.letter_id,
        "workspace": address.workspace,
        "service": address.service,
        "handler": address.handler,
        "session": address.session or None,
        "state": letter.state,
        "tries": letter.tries,
        "openings": letter.openings,
        "first_at": iso(letter.first_at_ms),
        "last_at": iso(letter.last_at_ms),
        "due_at": iso(letter.due_at_ms) if letter.state in WAITING else None,
        "error": {"code": letter.fault.code, "text": letter.fault.text},
        "message": {
            "stream": address.stream,
            "sequence": address.sequence,
            "subject": address.subject,
            "at": iso(address.time_ms),
        },
        "actions": [
            {"verb": each.verb, "by": each.by, "at": iso(each.at_ms), "note": each.note}
            for each in letter.actions
        ],
    }


def content_of(stored: Stored) -> Any:  # noqa: ANN401 - whatever was sent
    """What a message says, as far as it can be read: a record, JSON, text; above 64 KiB its beginning as text."""
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
    for letter, _ in parts.letters.shown(parts.clock.now_ms()):
        if letter.address.workspace == workspace and letter.address.letter_id == letter_id:
            return letter
    raise _unknown(letter_id)


def _unknown(letter_id: str) -> NotFound:
    return NotFound(
        f"there is no dead letter {letter_id[:160]}", hint="`anchorwatch dead-letters` lists them"
    )


def _matches(letter: DeadLetter, filters: dict[str, str | None]) -> bool:
    return (
        filters["state"] in (None, letter.state)
        and filters["service"] in (None, letter.address.service)
        and filters["session"] in (None, letter.address.session)
    )


def _cursor(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdecimal()):
        raise BadInput("the cursor is none of this list", hint="use `next` of the page before, as it is")
    return int(cursor[:18])
