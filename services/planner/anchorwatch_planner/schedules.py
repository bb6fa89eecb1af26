"""When to look at a session again: one replaceable schedule for each, kept by the server in the stream ``TICKS``.

A schedule is only ever moved to an earlier instant, and by compare-and-set, so a planner with an old view
cannot replace a P0 wake by its heartbeat. One that fires too early costs a look, which writes the next one; so
most turns write none.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from dataclasses import dataclass

from anchorwatch.bus.port import Bus, Expect, Message, Schedule, WrongLastSequence
from anchorwatch.core.errors import Unavailable
from anchorwatch.core.names import SessionRef
from anchorwatch.edges import Edge, reached
from anchorwatch.service.context import Clock
from anchorwatch.topology.streams import TICKS
from anchorwatch.topology.subjects import SessionSubjects

KNOWN_MAX = 4096
TRUST_S_MAX = 60.0
"""Another planner may take the tick, and a clock may be set: what was seen of a schedule says little after this long."""
ATTEMPTS_MAX = 8


@dataclass(frozen=True, slots=True)
class _Known:
    """A schedule that was seen to stand; that is believed until ``until_s``, in the loop's time."""

    at_ms: int
    until_s: float


class Schedules:
    """Writes the schedules of sessions, and remembers what it wrote."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._known: OrderedDict[SessionRef, _Known] = OrderedDict()

    def forget(self, ref: SessionRef) -> None:
        """A tick of this session fired: what was known of its schedule no longer holds."""
        self._known.pop(ref, None)

    async def ensure(self, ref: SessionRef, at_ms: int) -> None:
        """See to it that a tick fires at ``at_ms`` or before.

        Raises:
            Unavailable: not confirmed; ask again.
        """
        known = self._known.get(ref)
        if known and known.at_ms <= at_ms and asyncio.get_running_loop().time() < known.until_s:
            return
        subjects = SessionSubjects(ref)
        for _ in range(ATTEMPTS_MAX):
            standing_ms, sequence = await self._standing(subjects.tick_schedule)
            if self._clock.now_ms() < standing_ms <= at_ms:
                self._remember(ref, standing_ms)
                return
            message = Message(
                subjects.tick_schedule,
                json.dumps({"at_ms": at_ms}).encode(),
                expect=Expect(subjects.tick_schedule, sequence),
                schedule=Schedule(at_ms, subjects.tick_fired),
            )
            try:
                reached(Edge.PLANNER_SCHEDULE_BEFORE)
                await self._bus.publish(message)
                reached(Edge.PLANNER_SCHEDULE_AFTER)
            except WrongLastSequence:
                continue
            self._remember(ref, at_ms)
            return
        raise Unavailable(f"the schedule of {ref} is being written by others")

    async def _standing(self, subject: str) -> tuple[int, int]:
        page = await self._bus.last(TICKS, [subject])
        if not page.messages:
            return 0, 0
        stored = page.messages[0]
        return int(json.loads(stored.payload)["at_ms"]), stored.sequence

    def _remember(self, ref: SessionRef, at_ms: int) -> None:
        # Its own clock may be set back: then the instant lies ahead once more, and the tick has fired all the same.
        left_s = min((at_ms - self._clock.now_ms()) / 1000, TRUST_S_MAX)
        self._known[ref] = _Known(at_ms, asyncio.get_running_loop().time() + left_s)
        self._known.move_to_end(ref)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
