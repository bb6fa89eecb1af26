"""Quarantine in the journal: the anchor that says that its session refuses to run, since which record, and why.

It is written directly behind the last planner record, whatever that is, and holds what the last anchor that can be read
says. Where that is not the register's last, the fence is as high as anything in the journal demands.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Literal

from anchorwatch.bus.port import Bus, Expect, Stored
from anchorwatch.codec import decode, decode_anchor, encode_anchor, sha256_hex
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import BadInput, Damaged, Fenced, NewerSchema
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.session.quarantine import Lost, quarantined, rebuilt
from anchorwatch.journal.commit import Committer, Write
from anchorwatch.topology.subjects import SessionSubjects, parse_register

PAGE = 512
ATTEMPTS_MAX = 5
REASON_CHARS_MAX = 500
_RUN_OF_FX, _RUN_OF_LATE = 2, 1


Read = Callable[[int], Awaitable[object]]
"""Load the session anew, complete at least up to that sequence; it raises `Damaged`."""
Verdict = Literal["written", "stands", "whole"]


async def quarantine(
    bus: Bus, committer: Committer, ref: SessionRef, read: Read, *, at_ms: int, writer: str
) -> Verdict:
    """Record that the session refuses to run, if ``read`` says that it cannot be loaded; what was done.

    It is read after the record that the quarantine is fenced on: a repair meanwhile is not undone by what was seen
    before it. ``stands``: it is quarantined already, or was deleted. ``whole``: it can be loaded after all.

    Raises:
        Damaged: no anchor of the session can be read; nothing was written. NewerSchema: a newer release must look.
        Unavailable. Fenced: others kept writing to the session.
    """
    subjects = SessionSubjects(ref)
    for _ in range(ATTEMPTS_MAX):
        last = (await bus.last(committer.stream, [subjects.planner_family])).messages
        head = max(last, key=lambda stored: stored.sequence, default=None)
        damage = await _damage(read, head.sequence if head else 0)
        if damage is None:
            return "whole"
        if head is None:
            raise damage
        anchor = await _believed(bus, committer.stream, ref, last)
        if anchor.status in ("quarantined", "deleted"):
            return "stands"
        try:
            fence = Expect(subjects.planner_family, head.sequence)
            write = Write(subjects.anchor, _record(anchor, damage, head, at_ms, writer))
            await committer.commit([write], fence)
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


def _record(anchor: Anchor, damage: Damaged, head: Stored, at_ms: int, writer: str) -> bytes:
    reason = damage.message[:REASON_CHARS_MAX]
    body = {"reason": reason, "damage": {"sequence": damage.sequence, "register": damage.register}}
    record = Record(Kind.QUARANTINED, at_ms, writer, body, link(head))
    return encode_anchor(quarantined(anchor), record)[0]


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
    """What stands behind the anchor at sequence ``base``, of all records of its session."""
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


async def _believed(bus: Bus, stream: str, ref: SessionRef, last: Sequence[Stored]) -> Anchor:
    """The session's anchor; where the last one cannot be read, what is safe to believe."""
    subjects = SessionSubjects(ref)
    newest = [stored for stored in last if stored.subject == subjects.anchor]
    if newest:
        try:
            return decode_anchor(newest[0].payload)[0]
        except NewerSchema:
            raise
        except Damaged:
            pass
    base: tuple[Anchor, int] | None = None
    everything = await read_all(bus, stream, subjects.everything)
    for stored in everything:
        if stored.subject == subjects.anchor:
            try:
                base = decode_anchor(stored.payload)[0], stored.sequence
            except NewerSchema:
                raise
            except Damaged:
                continue
    if base is None:
        raise Damaged(f"no anchor of {ref} can be read", hint="`anchorwatch journal verify`")
    return rebuilt(base[0], lost_behind(base[1], everything))


async def read_all(bus: Bus, stream: str, filter_: str) -> list[Stored]:
    """Every message that matches, in order."""
    found, start = list[Stored](), 1
    while True:
        page = await bus.range(stream, filter_, start, limit=PAGE)
        found += page.messages
        if not page.more:
            return found
        start = found[-1].sequence + 1
