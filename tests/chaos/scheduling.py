"""Schedules for the sweep: one with a slot in the past, and one of an unknown session."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from anchorwatch.bus.port import Bus
from anchorwatch.core.schedules import machine
from anchorwatch.core.schedules.cron import Cron
from anchorwatch.core.schedules.schedule import Changed, Definition, Schedule
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.orders import Asked
from anchorwatch.journal.schedules import ScheduleJournal
from anchorwatch.topology.streams import journal_stream
from anchorwatch.zones import zone_of

WORKSPACE = "default"
WRITER = "tests:chaos"
MADE_BEFORE = timedelta(minutes=10)
DUE_BEFORE = timedelta(minutes=5)
UTC_ZONE = zone_of("UTC")


@dataclass
class Daily:
    """A schedule with one slot a day, five minutes before now, that was made five minutes before that.

    Its occurrence waits where a turn runs, as the first one of a young session may.
    """

    bus: Bus
    name: str

    @property
    def journal(self) -> ScheduleJournal:
        return ScheduleJournal(self.bus, Committer(self.bus, journal_stream()), WRITER)

    async def make(self, session: str) -> None:
        """Create it for a session; its slot fires at once."""
        now = datetime.now(UTC)
        slot, made_ms = now - DUE_BEFORE, round((now - MADE_BEFORE).timestamp() * 1000)
        cron = f"{slot.minute} {slot.hour} * * *"
        definition = Definition(WORKSPACE, self.name, session, cron, "UTC", "look", overlap="queue-one")
        await self.journal.make(definition, UTC_ZONE, Asked(f"c-{self.name}", "ada", "made"), made_ms)

    async def now(self) -> Schedule:
        return await self.journal.find(WORKSPACE, self.name)

    async def delete(self) -> None:
        changed = Changed("ada", round(datetime.now(UTC).timestamp() * 1000))
        asked = Asked(f"c-{self.name}-deleted", "ada", "deleted")
        await self.journal.order(
            WORKSPACE,
            self.name,
            asked,
            changed.at_ms,
            lambda each: machine.delete(each, Cron(each.definition.cron), UTC_ZONE, changed),
        )
