"""Schedules in the journal: each is a register of its workspace, and its last record is the whole schedule.

An occurrence and the schedule behind it are one atomic write, fenced on the register: so a slot is made an input once, by
whichever planner, and there is no moment at which a crash could leave one of the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import tzinfo
from typing import Any, TypeVar

from anchorwatch.bus.port import Bus, Expect, Stored
from anchorwatch.codec import decode, encode
from anchorwatch.core.errors import Conflict, Damaged, NotFound, Refused
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.schedules import machine
from anchorwatch.core.schedules.machine import Occurrence
from anchorwatch.core.schedules.schedule import (
    MISSED,
    OVERLAPS,
    STATES,
    Changed,
    Counts,
    Definition,
    Owed,
    Schedule,
)
from anchorwatch.core.schedules.zones import read_slot, slot_text
from anchorwatch.core.session.state import P1
from anchorwatch.core.session.wakes import SCHEDULE_SOURCE
from anchorwatch.journal.commit import DEADLINE_S, Committer, Write
from anchorwatch.journal.inputs import input_id
from anchorwatch.journal.mapping import input_body
from anchorwatch.journal.ordered import OrderedRegisters
from anchorwatch.journal.orders import Asked
from anchorwatch.journal.reading import newest
from anchorwatch.topology.subjects import SCHEDULE, SCHEDULED, SessionSubjects

T = TypeVar("T")

SHARD = "0"
NAMES_MAX = 500
"""Names of schedules in a workspace, those that were deleted too: one read must be able to see them all."""


def schedule_subject(workspace: str, name: str, shard: str = SHARD) -> str:
    """The register of a schedule."""
    return SCHEDULE.at(shard=shard, workspace=workspace, name=name)


def session_of(schedule: Schedule) -> SessionRef:
    """The session that it wakes."""
    return SessionRef(schedule.definition.workspace, schedule.definition.session, SHARD)


def read_schedule(stored: Stored) -> Schedule:
    """The schedule in a message of its register.

    Raises:
        Damaged: it cannot be trusted.
    """
    tokens = SCHEDULE.parse(stored.subject) or {}
    record = decode(stored.payload)
    body = record.body
    try:
        definition = Definition(
            workspace=tokens["workspace"],
            name=tokens["name"],
            session=body["session"],
            cron=body["cron"],
            zone=body["zone"],
            text=body.get("text", ""),
            missed=_one_of(MISSED, body["missed"]),
            overlap=_one_of(OVERLAPS, body["overlap"]),
        )
        return Schedule(
            definition=definition,
            schedule_id=body["id"],
            state=_one_of(STATES, body["state"]),
            after=read_slot(body["after"]),
            changed=Changed(body["by"], body["changed_at_ms"], body.get("reason", "")),
            counts=Counts(*body["counts"]),
            last_slot=read_slot(body["last_slot"]) if "last_slot" in body else None,
            owed=_read_owed(*body["owed"]) if "owed" in body else None,
            sequence=stored.sequence,
        )
    except (KeyError, ValueError, TypeError) as error:
        raise Damaged(f"sequence {stored.sequence}: a field is missing or odd: {error!r}") from None


def _read_owed(slot: str, missed: int, first: str) -> Owed:
    return Owed(read_slot(slot), missed, read_slot(first))


def _one_of(known: tuple[T, ...], value: T) -> T:
    """As it is known.

    Raises:
        ValueError: it is not.
    """
    return known[known.index(value)]


def schedule_body(schedule: Schedule) -> dict[str, Any]:
    """The body of its record."""
    definition, counts = schedule.definition, schedule.counts
    body: dict[str, Any] = {
        "id": schedule.schedule_id,
        "session": definition.session,
        "cron": definition.cron,
        "zone": definition.zone,
        "missed": definition.missed,
        "overlap": definition.overlap,
        "state": schedule.state,
        "after": slot_text(schedule.after),
        "counts": [counts.made, counts.missed, counts.skipped],
        "by": schedule.changed.by,
        "changed_at_ms": schedule.changed.at_ms,
    }
    last = slot_text(schedule.last_slot) if schedule.last_slot else ""
    owed = schedule.owed and [
        slot_text(schedule.owed.slot),
        schedule.owed.missed,
        slot_text(schedule.owed.first),
    ]
    optional = {
        "text": definition.text,
        "last_slot": last,
        "owed": owed,
        "reason": schedule.changed.reason,
    }
    return body | {name: value for name, value in optional.items() if value}


def occurrence_id(schedule: Schedule, occurrence: Occurrence) -> str:
    """The id of an occurrence's input: of the schedule and the slot, so that no slot can be made twice."""
    return input_id("slot", schedule.schedule_id, slot_text(occurrence.slot))


def occurrence_body(schedule: Schedule, occurrence: Occurrence) -> dict[str, Any]:
    """The body of an occurrence's input."""
    definition, slot = schedule.definition, slot_text(occurrence.slot)
    data: dict[str, Any] = {"schedule": definition.name, "slot": slot, "zone": definition.zone}
    if occurrence.missed:
        data |= {"missed": occurrence.missed, "first": slot_text(occurrence.first)}
    return input_body(
        "tick",
        P1,
        text=told(definition, occurrence),
        source=SCHEDULE_SOURCE,
        type_=definition.name,
        data=data,
        settled=occurrence.settled,
        why=occurrence.why,
    )


def told(definition: Definition, occurrence: Occurrence) -> str:
    """What the session is told."""
    missed = f" (it stands for {occurrence.missed} more that were missed)" if occurrence.missed else ""
    said = f": {definition.text}" if definition.text else ""
    return f"{slot_text(occurrence.slot)} {definition.zone}{missed}{said}"


class ScheduleJournal:
    """Reads and writes schedules. ``writer`` names the process in the records."""

    def __init__(self, bus: Bus, committer: Committer, writer: str) -> None:
        self._bus = bus
        self._committer = committer
        self._registers = OrderedRegisters(bus, committer)
        self._writer = writer

    async def standing(self, workspace: str) -> tuple[Stored, ...]:
        """The last record of every schedule that the workspace ever had, for `read_schedule`."""
        filter_ = SCHEDULE.filter(shard=SHARD, workspace=workspace)
        return (await self._bus.last(self._committer.stream, [filter_])).messages

    async def find(self, workspace: str, name: str) -> Schedule:
        """A schedule, as it is now.

        Raises:
            NotFound: there is none of that name. Damaged. Unavailable.
        """
        subject = schedule_subject(workspace, name)
        found = await newest(self._bus, self._committer.stream, [subject])
        if subject not in found:
            raise _unknown(name)
        return read_schedule(found[subject])

    async def was_ordered(self, workspace: str, asked: Asked) -> bool:
        """Whether a request under this key has made or changed a schedule.

        Raises:
            Unavailable.
        """
        return await self._registers.was_ordered(_receipt(workspace, asked))

    async def make(
        self, definition: Definition, zone: tzinfo, asked: Asked, at_ms: int, deadline_s: float = DEADLINE_S
    ) -> tuple[Schedule, bool]:
        """Make a schedule: (it, whether the same request had made it before).

        Raises:
            Conflict: there is one of that name. Refused: there are too many. IdempotencyConflict, Fenced, Unavailable.
        """
        known = {stored.subject for stored in await self.standing(definition.workspace)}
        changed = Changed(asked.by, at_ms)

        def change(found: Stored | None) -> Record:
            if found is not None and read_schedule(found).living:
                raise Conflict(
                    f"there is a schedule {definition.name}", hint="delete it first, or choose another name"
                )
            if found is None and len(known) >= NAMES_MAX:
                raise Refused(
                    f"the workspace has had {NAMES_MAX} schedules, and no more fit",
                    hint="delete one, and use its name again",
                )
            return self._record(machine.make(definition, asked.control_id, zone, changed), at_ms, asked)

        return await self._order(definition.workspace, definition.name, asked, change, deadline_s)

    async def order(
        self,
        workspace: str,
        name: str,
        asked: Asked,
        at_ms: int,
        change: Callable[[Schedule], Schedule],
        deadline_s: float = DEADLINE_S,
    ) -> tuple[Schedule, bool]:
        """Change a schedule once: (it, whether the same request had done so before).

        Raises:
            NotFound: there is none of that name. Refused: by ``change``. IdempotencyConflict, Fenced, Unavailable, Damaged.
        """

        def make(found: Stored | None) -> Record:
            if found is None:
                raise _unknown(name)
            return self._record(change(read_schedule(found)), at_ms, asked)

        return await self._order(workspace, name, asked, make, deadline_s)

    async def see_to(self, before: Schedule, occurrence: Occurrence, after: Schedule, at_ms: int) -> Schedule:
        """Make the occurrence an input of its session, and the schedule what it is behind it: both or neither.

        Raises:
            Fenced: somebody was first. Unavailable: not known; whoever looks again knows.
        """
        subjects = SessionSubjects(session_of(before))
        given = subjects.input(occurrence_id(before, occurrence))
        body = occurrence_body(before, occurrence)
        payload, _ = encode(Record(Kind.INPUT, at_ms, self._writer, body))
        return await self._write(before, after, at_ms, [Write(given, payload, Expect(given, 0))])

    async def end(self, before: Schedule, after: Schedule) -> Schedule:
        """End the schedule of a session that is gone.

        Raises:
            Fenced, Unavailable: as `see_to`.
        """
        return await self._write(before, after, after.changed.at_ms, [])

    async def _write(self, before: Schedule, after: Schedule, at_ms: int, more: list[Write]) -> Schedule:
        subject = schedule_subject(before.definition.workspace, before.name)
        payload, _ = encode(self._record(after, at_ms))
        writes = [Write(subject, payload), *more]
        last = await self._committer.commit(writes, Expect(subject, before.sequence))
        return replace(after, sequence=last - len(more))

    async def _order(
        self,
        workspace: str,
        name: str,
        asked: Asked,
        change: Callable[[Stored | None], Record],
        deadline_s: float,
    ) -> tuple[Schedule, bool]:
        subject = schedule_subject(workspace, name)
        receipt = _receipt(workspace, asked)
        stored, replayed = await self._registers.order(subject, receipt, asked, change, deadline_s)
        return read_schedule(stored), replayed

    def _record(self, schedule: Schedule, at_ms: int, asked: Asked | None = None) -> Record:
        body = schedule_body(schedule)
        if asked is not None:
            body["control"] = asked.control_id
        return Record(Kind.SCHEDULE, at_ms, self._writer, body)


def _receipt(workspace: str, asked: Asked) -> str:
    return SCHEDULED.at(shard=SHARD, workspace=workspace, control_id=asked.control_id)


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no schedule {name[:80]!r}", hint="`anchorwatch schedule` lists them")
