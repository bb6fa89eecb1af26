"""Schedules in the journal: each is a register of its workspace, and its last record is the whole schedule.

An occurrence and the new schedule are one atomic write, fenced on the register: so a slot becomes an input once, by one
planner, and no crash leaves one of the two (INV-805).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import tzinfo

from anchorwatch.bus.port import Bus, Expect, Stored
from anchorwatch.codec import encode
from anchorwatch.core.errors import Conflict, Damaged, NotFound, Refused
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.schedules import machine
from anchorwatch.core.schedules.machine import Occurrence
from anchorwatch.core.schedules.schedule import (
    Changed,
    Definition,
    Schedule,
)
from anchorwatch.journal.commit import DEADLINE_S, Committer, Write
from anchorwatch.journal.ordered import OrderedRegisters
from anchorwatch.journal.orders import Asked
from anchorwatch.journal.reading import newest
from anchorwatch.journal.schedule_records import occurrence_body, occurrence_id, read_schedule, schedule_body
from anchorwatch.topology.subjects import SCHEDULE, SCHEDULED, SessionSubjects

SCHEDULES_MAX = 500
"""Schedules in a workspace that were not deleted."""
NAMES_MAX = 1_000
"""Names that a workspace ever gives to schedules: a register stays for ever, and one read (of 1,024) must see them all."""


def schedule_subject(workspace: str, name: str) -> str:
    """The register of a schedule."""
    return SCHEDULE.at(workspace=workspace, name=name)


def session_of(schedule: Schedule) -> SessionRef:
    """The session that it wakes."""
    return SessionRef(schedule.definition.workspace, schedule.definition.session)


class ScheduleJournal:
    """Reads and writes schedules. ``writer`` names the process in the records."""

    def __init__(self, bus: Bus, committer: Committer, writer: str) -> None:
        self._bus = bus
        self._committer = committer
        self._registers = OrderedRegisters(bus, committer)
        self._writer = writer

    async def standing(self, workspace: str) -> tuple[Stored, ...]:
        """The last record of every schedule that the workspace ever had, for `read_schedule`."""
        filter_ = SCHEDULE.filter(workspace=workspace)
        return (await self._bus.last(self._committer.stream, [filter_])).messages

    async def find(self, workspace: str, name: str) -> Schedule:
        """A schedule, as it is now.

        Raises:
            NotFound: the name is unknown. Damaged. Unavailable.
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
            Conflict: the name exists. Refused: there are too many. IdempotencyConflict, Fenced, Unavailable.
        """
        standing = await self.standing(definition.workspace)
        changed = Changed(asked.by, at_ms)

        def change(found: Stored | None) -> Record:
            if found is not None and read_schedule(found).living:
                raise Conflict(
                    f"there is a schedule {definition.name}", hint="delete it first, or choose another name"
                )
            _check_room(standing, is_new=found is None)
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
            NotFound: the name is unknown. Refused: by ``change``. IdempotencyConflict, Fenced, Unavailable, Damaged.
        """

        def make(found: Stored | None) -> Record:
            if found is None:
                raise _unknown(name)
            return self._record(change(read_schedule(found)), at_ms, asked)

        return await self._order(workspace, name, asked, make, deadline_s)

    async def see_to(self, before: Schedule, occurrence: Occurrence, after: Schedule, at_ms: int) -> Schedule:
        """Make the occurrence an input of its session and advance the schedule: both or neither.

        Raises:
            Fenced: another planner was first. Unavailable: unknown; the next read tells.
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
    return SCHEDULED.at(workspace=workspace, control_id=asked.control_id)


def _check_room(standing: Sequence[Stored], *, is_new: bool) -> None:
    """Whether the workspace takes another schedule, under a name that is new to it or not.

    Raises:
        Refused: it does not.
    """
    free = [name for stored in standing if (name := _name_if_deleted(stored))]
    if len(standing) - len(free) >= SCHEDULES_MAX:
        raise Refused(
            f"the workspace has {SCHEDULES_MAX} schedules, and no more fit",
            hint="delete one that is not needed; one whose session is gone counts too",
        )
    if is_new and len(standing) >= NAMES_MAX:
        raise Refused(
            f"the workspace has given {NAMES_MAX} names to schedules, and no new one fits",
            hint=f"use the name of one that was deleted, such as {free[0]}",
        )


def _name_if_deleted(stored: Stored) -> str:
    try:
        schedule = read_schedule(stored)
    except Damaged:
        return ""
    return schedule.name if schedule.state == "deleted" else ""


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no schedule {name[:80]!r}", hint="`anchorwatch schedule` lists them")
