"""The schedules that people made: each slot becomes one input of its session, whichever process dies and whatever clocks do.

A schedule is checked after each write of its record (which sets the next timer, by another planner if the writer died), when
its timer fires, and at each sweep, since a timer can be lost and a clock can be set.
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
from anchorwatch.edges import Edge, around
from anchorwatch.journal.schedule_records import read_schedule
from anchorwatch.journal.schedules import ScheduleJournal, session_of
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.service.context import Clock, Identity
from anchorwatch.zones import zone_of

from anchorwatch_planner.wakeups import WakeupTimers, timer_of_schedule

ROUNDS_MAX = 8
SESSION_DELETED = "its session was deleted"


class ScheduleRunner:
    """Runs all schedules of the mesh."""

    def __init__(
        self,
        journal: ScheduleJournal,
        sessions: SessionJournal,
        timers: WakeupTimers,
        identity: Identity,
        clock: Clock,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._journal = journal
        self._sessions = sessions
        self._timers = timers
        self._identity = identity
        self._clock = clock
        self._log = log

    async def on_fired(self, workspace: str, name: str, server_ms: int) -> None:
        """The timer of a schedule fired, at ``server_ms`` by the server's clock: as `check`."""
        self._timers.on_fired(timer_of_schedule(workspace, name), server_ms)
        await self.check(workspace, name)

    async def check(self, workspace: str, name: str) -> None:
        """Make an input of each slot that is due, and set the timer for the next one.

        Raises:
            Damaged: its record cannot be read. Unavailable: check again.
        """
        for _ in range(ROUNDS_MAX):
            try:
                await self._advance(await self._journal.find(workspace, name))
                return
            except Fenced:
                continue
            except NotFound:
                return
        raise Fenced(f"the schedule {name} is being written by other processes")

    async def sweep(self, workspaces: Iterable[str]) -> None:
        """Check every schedule of these workspaces. A failure of one does not stop the others.

        Raises:
            Unavailable: the bus is not available.
        """
        for workspace in workspaces:
            for stored in await self._journal.standing(workspace):
                await self._sweep_one(stored)

    async def _sweep_one(self, stored: Stored) -> None:
        try:
            schedule = read_schedule(stored)
            if schedule.living:
                await self._advance(schedule)
        except Fenced:
            # Another process has just written it, and that write is a message to every planner.
            return
        except AnchorWatchError as error:
            self._log.error("schedule.failed", subject=stored.subject, code=error.code, reason=str(error))

    async def _advance(self, schedule: Schedule) -> None:
        if not schedule.living:
            return
        definition = schedule.definition
        cron, zone = Cron.parse(definition.cron), zone_of(definition.zone)
        if await self._session_deleted(schedule):
            changed = Changed(self._identity.execution_id, self._clock.now_ms(), SESSION_DELETED)
            with around(Edge.PLANNER_SCHEDULE_END_BEFORE):
                await self._journal.end(schedule, machine.end(schedule, cron, zone, changed))
            return
        next_ms = machine.next_ms(schedule, cron, zone)
        if next_ms is not None and next_ms <= self._clock.now_ms():
            schedule = await self._run_slot(schedule, cron, zone)
            next_ms = machine.next_ms(schedule, cron, zone)
        if next_ms is not None:
            timer = timer_of_schedule(definition.workspace, definition.name)
            await self._timers.ensure(timer, next_ms)

    async def _run_slot(self, schedule: Schedule, cron: Cron, zone: tzinfo) -> Schedule:
        """Make an input of the slot that is due; returns the schedule after it."""
        sight, now_ms = await self._sight(schedule), self._clock.now_ms()
        found = machine.due(schedule, cron, zone, now_ms, sight)
        if found is None:
            return schedule
        occurrence, after = found
        with around(Edge.PLANNER_OCCURRENCE_BEFORE):
            schedule = await self._journal.see_to(schedule, occurrence, after, now_ms)
        self._log.info(
            "schedule.fired", session=str(session_of(schedule)), schedule=schedule.name,
            slot=slot_text(occurrence.slot), missed=occurrence.missed, settled=occurrence.settled,
        )  # fmt: skip
        return schedule

    async def _session_deleted(self, schedule: Schedule) -> bool:
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
        """What the session is doing, read up to the last occurrence of the schedule."""
        try:
            # The same write holds, after the record, the occurrence that it was written for, or the receipt of an order.
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
