"""Sees to the schedules that people made: each slot becomes an input of its session once, whoever dies, whatever clocks do.

A schedule is looked at when its record was written (so the bell for what comes next is set behind every change, by another
planner where the first one died), when its bell rings, and at each sweep, since a bell may be lost and a clock be set.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import tzinfo

import structlog
from anchorwatch.bus.port import Stored
from anchorwatch.core.errors import AnchorWatchError, Damaged, Fenced, NewerSchema, NotFound
from anchorwatch.core.schedules import machine
from anchorwatch.core.schedules.cron import Cron
from anchorwatch.core.schedules.machine import Sight
from anchorwatch.core.schedules.schedule import Changed, Schedule
from anchorwatch.core.schedules.zones import slot_text
from anchorwatch.core.session.wakes import SCHEDULE_SOURCE
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.schedule_records import read_schedule
from anchorwatch.journal.schedules import SHARD, ScheduleJournal, session_of
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.service.context import Clock, Identity
from anchorwatch.zones import zone_of

from anchorwatch_planner.schedules import Schedules, bell_of_schedule

ROUNDS_MAX = 8
GONE = "its session was deleted"


class Timetable:
    """All schedules of the mesh."""

    def __init__(
        self,
        journal: ScheduleJournal,
        sessions: SessionJournal,
        bells: Schedules,
        identity: Identity,
        clock: Clock,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._journal = journal
        self._sessions = sessions
        self._bells = bells
        self._identity = identity
        self._clock = clock
        self._log = log

    async def rung(self, workspace: str, name: str, server_ms: int) -> None:
        """The bell of a schedule rang, at this instant by the server's clock: as `look`."""
        self._bells.rang(bell_of_schedule(SHARD, workspace, name), server_ms)
        await self.look(workspace, name)

    async def look(self, workspace: str, name: str) -> None:
        """Do what is to be done about a schedule now, and set the bell for what comes next.

        Raises:
            Damaged: it cannot be read. Unavailable: look again.
        """
        for _ in range(ROUNDS_MAX):
            try:
                await self._see_to(await self._journal.find(workspace, name))
                return
            except Fenced:
                continue
            except NotFound:
                return
        raise Fenced(f"the schedule {name} is being written by others")

    async def sweep(self, workspaces: Iterable[str]) -> None:
        """Look at every schedule of these workspaces. One that cannot be seen to holds up no other.

        Raises:
            Unavailable: the bus is away.
        """
        for workspace in workspaces:
            for stored in await self._journal.standing(workspace):
                await self._sweep_one(stored)

    async def _sweep_one(self, stored: Stored) -> None:
        try:
            schedule = read_schedule(stored)
            if schedule.living:
                await self._see_to(schedule)
        except Fenced:
            # Somebody else has just written it, and that is a message to every planner.
            return
        except AnchorWatchError as error:
            self._log.error(
                "a schedule cannot be seen to", subject=stored.subject, code=error.code, why=str(error)
            )

    async def _see_to(self, schedule: Schedule) -> None:
        if not schedule.living:
            return
        definition = schedule.definition
        cron, zone = Cron.parse(definition.cron), zone_of(definition.zone)
        if await self._is_gone(schedule):
            changed = Changed(self._identity.execution_id, self._clock.now_ms(), GONE)
            reached(Edge.PLANNER_SCHEDULE_END_BEFORE)
            await self._journal.end(schedule, machine.end(schedule, cron, zone, changed))
            reached(Edge.PLANNER_SCHEDULE_END_AFTER)
            return
        next_ms = machine.next_ms(schedule, cron, zone)
        if next_ms is not None and next_ms <= self._clock.now_ms():
            schedule = await self._make(schedule, cron, zone)
            next_ms = machine.next_ms(schedule, cron, zone)
        if next_ms is not None:
            bell = bell_of_schedule(SHARD, definition.workspace, definition.name)
            await self._bells.ensure(bell, next_ms)

    async def _make(self, schedule: Schedule, cron: Cron, zone: tzinfo) -> Schedule:
        """Make what is due an input; returns the schedule behind it."""
        sight, now_ms = await self._sight(schedule), self._clock.now_ms()
        found = machine.due(schedule, cron, zone, now_ms, sight)
        if found is None:
            return schedule
        occurrence, after = found
        reached(Edge.PLANNER_OCCURRENCE_BEFORE)
        schedule = await self._journal.see_to(schedule, occurrence, after, now_ms)
        reached(Edge.PLANNER_OCCURRENCE_AFTER)
        self._log.info(
            "a schedule was due", session=str(session_of(schedule)), schedule=schedule.name,
            slot=slot_text(occurrence.slot), missed=occurrence.missed, settled=occurrence.settled,
        )  # fmt: skip
        return schedule

    async def _is_gone(self, schedule: Schedule) -> bool:
        try:
            anchor, _ = await self._sessions.read_anchor(session_of(schedule), schedule.sequence)
        except NotFound:
            return True
        except NewerSchema:
            raise
        except Damaged:
            return False
        return anchor.status == "deleted"

    async def _sight(self, schedule: Schedule) -> Sight:
        """What the session is doing, with all that came of the schedule so far."""
        try:
            # Behind the record stands, in the same write, the occurrence that it was written for, or the receipt of an order.
            state = await self._sessions.load(session_of(schedule), schedule.sequence + 1)
        except NewerSchema:
            raise
        except Damaged:
            return Sight(running=False, waiting=False, readable=False)
        waiting = any(
            each.kind == "tick" and (each.source, each.type) == (SCHEDULE_SOURCE, schedule.name)
            for each in state.pending
        )
        return Sight(running=state.turn is not None, waiting=waiting)
