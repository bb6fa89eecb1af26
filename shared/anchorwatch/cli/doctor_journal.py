"""The doctor's check of the journal: the records that its server lost, and the sessions that this may concern."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from anchorwatch.bus.port import Bus, Stored
from anchorwatch.cli.checks import Check, failed, named, passed, session, warned
from anchorwatch.cli.render import local_time
from anchorwatch.codec import decode_anchor
from anchorwatch.core.errors import AnchorWatchError, Damaged
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.journal.heads import last_anchor
from anchorwatch.journal.integrity.findings import lost_id
from anchorwatch.journal.integrity.losses import Losses, losses
from anchorwatch.journal.integrity.repair import RECEIPT
from anchorwatch.journal.truncation import Gap, standing_hold
from anchorwatch.topology.streams import ANCHORS_BUCKET, journal_stream
from anchorwatch.topology.subjects import CONTROL, SessionSubjects, parse_register

NAME = "journal"
READ_MAX = 100_000
"""A longer journal is not read, which is a warning; only `journal verify` then finds records that the server cannot read."""
Hole = tuple[int, int]


async def examine(bus: Bus) -> list[Check]:
    """Check that the journal has its end, and that a person has accepted each gap in it."""
    try:
        return [await _examine(bus, journal_stream())]
    except AnchorWatchError as error:
        return [failed(NAME, error.message, error.hint)]


async def _examine(bus: Bus, stream: str) -> Check:
    hold = await standing_hold(bus, stream)
    if hold.on:
        return failed(
            NAME,
            f"{named([_lost_end(each) for each in hold.gaps])}; no turn or command starts",
            "`anchorwatch journal accept` lists the loss, and ends the hold once you accept it",
        )
    if ahead := await _ahead(bus, stream):
        return failed(
            NAME,
            ahead,
            "stop the mesh and restore the server's data from its newest copy; without a copy, check the real systems before you"
            " continue: effects after that end may be repeated",
        )
    messages = (await bus.stream_state(stream)).messages
    lost = await losses(bus, stream, read_all=messages <= READ_MAX)
    begun = await _begun(bus, stream) if lost.ranges else {}
    accepted = await _accepted(bus, stream) if lost.ranges else {}
    left = [
        f"{await _describe(bus, stream, each)}; it may concern {named(concerned)}"
        for each in lost.ranges
        if (concerned := _concerned(lost, each, begun, accepted))
    ]
    if left:
        return failed(
            NAME,
            named(left),
            "`anchorwatch journal verify SESSION` shows the effect on a session;"
            " `anchorwatch repair SESSION` accepts the loss in your name",
        )
    if messages > READ_MAX:
        return warned(
            NAME,
            f"{stream}: no unreviewed gaps that the server reports; {messages} records are too many to read here",
            "`anchorwatch journal verify SESSION` reads every record of a session",
        )
    return passed(NAME, f"{stream}: no unreviewed gaps in {messages} records")


async def _ahead(bus: Bus, stream: str) -> str:
    """Why the journal must have lost its end: the view of anchors, a copy of it, is newer. Empty if it is not."""
    view = await bus.bucket(ANCHORS_BUCKET)
    newer = []
    for key in await view.keys():
        ref, entry = SessionRef(*key.split(".", 1)), await view.get(key)
        if entry is None or entry.deleted:
            continue
        try:
            seen = decode_anchor(entry.value)
            last = await last_anchor(bus, stream, ref)
            there = [] if last is None else [decode_anchor(last.payload)]
        except Damaged:
            # The check of sessions reports a damaged session.
            continue
        if not there or seen[0].generation > there[0][0].generation or seen[0].run_id > there[0][0].run_id:
            newer.append(f"{session(ref)} (run {seen[0].run_id})")
    if not newer:
        return ""
    return (
        f"{stream} has lost its end: the view of anchors is newer, in {named(newer)}; the journal is an older copy,"
        " or the server removed records that it could not read"
    )


async def _describe(bus: Bus, stream: str, hole: Hole) -> str:
    first, through = hole
    where = f"sequence {first}" if first == through else f"sequences {first} to {through}"
    before = await _beside(bus, stream, first - 1)
    after = await _beside(bus, stream, through + 1)
    since = f"stored after {local_time(before.time_ms)}" if before else "at the start"
    until = f", before {local_time(after.time_ms)}" if after else ""
    return f"{stream} has lost {where} ({since}{until})"


async def _beside(bus: Bus, stream: str, sequence: int) -> Stored | None:
    page = await bus.range(stream, ">", sequence, limit=1, reach=0) if sequence else None
    return page.messages[0] if page and page.messages else None


async def _accepted(bus: Bus, stream: str) -> dict[SessionRef, set[str]]:
    """The findings that the repairs of each session accepted."""
    found = defaultdict[SessionRef, set[str]](set)
    for subject in await bus.counts(stream, CONTROL.filter()):
        register = parse_register(subject)
        if not register.path[1].startswith(RECEIPT):
            continue
        for receipt in (await bus.last(stream, [subject])).messages:
            # The anchor is directly before the receipt, in the same atomic write.
            anchor = SessionSubjects(register.ref).anchor_change
            for stored in (await bus.range(stream, anchor, receipt.sequence - 1, limit=1)).messages:
                found[register.ref] |= _accepts(stored)
    return found


def _accepts(stored: Stored) -> set[str]:
    try:
        record = decode_anchor(stored.payload)[1]
    except Damaged:
        return set()
    return set(map(str, record.body.get("accepted", ()))) if record.kind == Kind.REPAIRED else set()


async def _begun(bus: Bus, stream: str) -> dict[SessionRef, int]:
    """The sequence at which each session begins, of those that were not deleted."""
    view = await bus.bucket(ANCHORS_BUCKET)
    found = {}
    for key in await view.keys():
        ref = SessionRef(*key.split(".", 1))
        first = (await bus.range(stream, SessionSubjects(ref).anchor_change, 1, limit=1, reach=0)).messages
        if first and not await _is_deleted(bus, stream, ref):
            found[ref] = first[0].sequence
    return found


def _lost_end(gap: Gap) -> str:
    beyond = "" if not gap.open_end else "; the number of records after that is unknown"
    return (
        f"the journal lost its end, sequences {gap.first} to {gap.through} (found by {gap.found_by}{beyond})"
    )


def _concerned(
    lost: Losses, gone: Hole, begun: Mapping[SessionRef, int], accepted: Mapping[SessionRef, set[str]]
) -> Sequence[str]:
    """The sessions that may have lost a record in the gap, and for which no person has accepted it."""
    return sorted(
        session(ref)
        for ref, first in begun.items()
        if gone in lost.of(ref, first) and lost_id(*gone) not in accepted.get(ref, ())
    )


async def _is_deleted(bus: Bus, stream: str, ref: SessionRef) -> bool:
    try:
        last = await last_anchor(bus, stream, ref)
        return last is not None and decode_anchor(last.payload)[0].status == "deleted"
    except Damaged:
        return False
