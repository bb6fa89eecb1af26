"""The anchor, read from the journal itself: the truth, and how it came to be."""

from __future__ import annotations

from typing import Any

from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode_anchor
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import BadInput, Damaged, NotFound, Unavailable
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Record
from anchorwatch.core.times import iso
from anchorwatch.topology.subjects import SessionSubjects

from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.replies import Page
from anchorwatch_gateway.sessions import find

STALE_ATTEMPTS_MAX = 20


async def read(parts: Parts, ref: SessionRef) -> dict[str, Any]:
    """The anchor's fields, and ``record`` beside them: where it stands, what changed it, when, and who.

    Raises:
        NotFound, Unavailable, Damaged.
    """
    _, sequence = await find(parts, ref)
    stored = (await _range(parts, ref, sequence, 1))[0][0]
    anchor, record = decode_anchor(stored.payload)
    parts.seen.note(stored.sequence)
    return {**anchor.to_json(), "record": _envelope(stored, record)}


async def history(parts: Parts, ref: SessionRef, cursor: str | None, limit: int) -> Page:
    """The anchor's changes, oldest first: what changed (from, to), when, by whom, and why.

    Raises:
        NotFound, Unavailable. BadInput: ``cursor`` is none that this gave.
    """
    after = _sequence(cursor)
    # The change before the page is read too: what a record changed shows only beside the one before it.
    messages, more = await _range(parts, ref, after, limit + (1 if after else 0))
    if not messages and not after:
        raise NotFound(f"there is no session {ref.session}", hint="`anchorwatch sessions` lists them")
    before: Anchor | None = None
    entries = []
    for stored in messages:
        anchor, entry = _change(stored, before)
        before = anchor or before
        if stored.sequence > after:
            entries.append(entry)
    if messages:
        parts.seen.note(messages[-1].sequence)
    return Page(data=entries, next=str(messages[-1].sequence) if more else None)


async def _range(parts: Parts, ref: SessionRef, start: int, limit: int) -> tuple[tuple[Stored, ...], bool]:
    subject = SessionSubjects(ref).anchor
    for _ in range(STALE_ATTEMPTS_MAX):
        page = await parts.bus.range(parts.committer.stream, subject, start, limit)
        # A page that ended at its limit is complete as far as it goes: only an end of the list must be up to date.
        if page.more or page.up_to >= max(start, parts.seen.sequence):
            return page.messages, page.more
    raise Unavailable("the answering server is behind", hint="try again")


def _change(stored: Stored, before: Anchor | None) -> tuple[Anchor | None, dict[str, Any]]:
    try:
        anchor, record = decode_anchor(stored.payload)
    except Damaged as error:
        at = {"sequence": stored.sequence, "kind": "damaged", "at": iso(stored.time_ms), "by": ""}
        return None, {**at, "reason": error.message, "changes": {}}
    old = before.to_json() if before else {}
    new = anchor.to_json()
    changes = {
        name: {"from": old.get(name), "to": value} for name, value in new.items() if old.get(name) != value
    }
    return anchor, {**_envelope(stored, record), "changes": changes}


def _envelope(stored: Stored, record: Record) -> dict[str, Any]:
    return {
        "sequence": stored.sequence,
        "kind": record.kind,
        "at": iso(record.at_ms),
        "by": str(record.body.get("by") or record.writer),
        "reason": str(record.body.get("reason", "")),
        "sha256": record.digest,
    }


def _sequence(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isdecimal() or len(cursor) > 18:  # noqa: PLR2004 - the digits of a 64-bit number
        raise BadInput("the cursor is none that this gave", hint="use `next` of the page before, as it is")
    return int(cursor)
