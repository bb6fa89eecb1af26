"""Quarantine in the journal: the anchor that says that its session refuses to run, since which record, and why.

It is written directly after the last planner record, also if the server cannot read that one, and holds
what the last anchor that can be read says. Where that is not the register's last, the fence is as high as anything in the
journal demands.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Literal

from anchorwatch.bus.port import Bus, Stored
from anchorwatch.codec import decode, decode_anchor, encode_anchor, sha256_hex
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import BadInput, Damaged, Fenced, NewerSchema
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.session.quarantine import Lost, rebuilt
from anchorwatch.core.session.transitions import changed
from anchorwatch.journal.commit import Committer, Write
from anchorwatch.journal.heads import Head, commit_behind, head_of, last_anchor, readable, unread
from anchorwatch.topology.subjects import SessionSubjects, parse_register

ATTEMPTS_MAX = 5
REASON_CHARS_MAX = 500
_RUN_OF_FX, _RUN_OF_LATE = 2, 1


Read = Callable[[int], Awaitable[object]]
"""Load the session again, complete at least up to that sequence; raises `Damaged`."""
Verdict = Literal["written", "kept", "whole"]


async def quarantine(
    bus: Bus, committer: Committer, ref: SessionRef, read: Read, *, at_ms: int, writer: str
) -> Verdict:
    """Record that the session refuses to run, if ``read`` says that it cannot be loaded; what was done.

    It is read after the record that the quarantine is fenced on: a repair meanwhile is not undone by what was seen
    before it. ``kept``: it is quarantined already, or was deleted. ``whole``: it can be loaded after all.

    Raises:
        Damaged: no anchor of the session can be read; nothing was written. NewerSchema: a newer release must look.
        Unavailable. Fenced: others kept writing to the session.
    """
    subjects = SessionSubjects(ref)
    for _ in range(ATTEMPTS_MAX):
        head = await head_of(bus, committer.stream, subjects.planner_family)
        # What the server cannot read at the end of the family is damage, whatever a reader of the rest may say.
        damage = head.damage or await _damage(read, head.sequence)
        if damage is None:
            return "whole"
        if head.stored is None:
            raise damage
        anchor = await _believed(bus, committer.stream, ref)
        if anchor.status == "deleted" or (anchor.status == "quarantined" and head.damage is None):
            return "kept"
        try:
            write = Write(subjects.anchor_change, _record(anchor, damage, head, at_ms, writer))
            await commit_behind(committer, [write], subjects.planner_family, head.sequence)
            return "written"
        except Fenced:
            continue
    raise Fenced(f"{ref} is being written by others")


async def _damage(read: Read, at_least: int) -> Damaged | None:
    try:
        await read(at_least)
    except NewerSchema:
        raise
    except Damaged as damage:
        return damage
    return None


def _record(anchor: Anchor, damage: Damaged, head: Head, at_ms: int, writer: str) -> bytes:
    reason = damage.message[:REASON_CHARS_MAX]
    body = {"reason": reason, "damage": {"sequence": damage.sequence, "register": damage.register}}
    previous = "" if head.damage or head.stored is None else link(head.stored)
    record = Record(Kind.QUARANTINED, at_ms, writer, body, previous)
    return encode_anchor(changed(anchor, Kind.QUARANTINED), record)[0]


def link(stored: Stored) -> str:
    """What the planner record behind ``stored`` carries as ``previous``: its digest; of an unreadable one, that of its bytes.

    Raises:
        NewerSchema: a newer release knows its digest.
    """
    try:
        if parse_register(stored.subject).kind == "p.anchor":
            return decode_anchor(stored.payload)[1].digest
        return decode(stored.payload).digest
    except NewerSchema:
        raise
    except Damaged:
        return sha256_hex(stored.payload)


def lost_behind(base: int, messages: Iterable[Stored]) -> Lost:
    """The records after the anchor at sequence ``base``, of all records of its session."""
    unreadable, runs = list[int](), set[int]()
    for stored in messages:
        if stored.sequence <= base:
            continue
        try:
            register = parse_register(stored.subject)
            path = register.path
            if register.kind == "p.anchor":
                unreadable.append(stored.sequence)
            elif path[0] == "p":
                runs.add(int(decode(stored.payload).body.get("run", 0)))
            elif path[0] in ("fx", "late"):
                runs.add(int(path[_RUN_OF_FX if path[0] == "fx" else _RUN_OF_LATE]))
        except (Damaged, BadInput, ValueError, TypeError, IndexError):
            continue
    return Lost(tuple(unreadable), frozenset(runs))


async def _believed(bus: Bus, stream: str, ref: SessionRef) -> Anchor:
    """The session's anchor; where the last one cannot be read, what is safe to believe."""
    try:
        if (last := await last_anchor(bus, stream, ref)) is not None:
            return decode_anchor(last.payload)[0]
    except NewerSchema:
        raise
    except Damaged:
        pass
    base: tuple[Anchor, int] | None = None
    everything = [stored async for stored in readable(bus, stream, SessionSubjects(ref).everything)]
    anchors = [stored for stored in everything if parse_register(stored.subject).kind == "p.anchor"]
    for stored in anchors:
        try:
            base = decode_anchor(stored.payload)[0], stored.sequence
        except NewerSchema:
            raise
        except Damaged:
            continue
    if base is None:
        raise Damaged(f"no anchor of {ref} can be read", hint="`anchorwatch journal verify`")
    lost = lost_behind(base[1], everything)
    gone = sum((await bus.counts(stream, SessionSubjects(ref).anchors)).values()) - len(anchors)
    if gone > 0:
        lost = lost.also(gone, await unread(bus, stream, base[1] + 1))
    return rebuilt(base[0], lost)
