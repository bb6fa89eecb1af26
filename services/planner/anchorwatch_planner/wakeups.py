"""Wake-up timers: when a session or a schedule gets its next pass. The server keeps them, as delayed messages in ``TICKS``.

There is one timer for each session and each schedule. A timer only moves to an earlier instant, by compare-and-swap, so a
planner with an old view cannot replace the wake-up of an urgent input by its heartbeat. A timer that fires too early costs one
pass, which sets the next one; so most turns set none.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from dataclasses import dataclass

from anchorwatch.bus.port import Bus, Expect, Message, Schedule, WrongLastSequence
from anchorwatch.core.errors import Fenced
from anchorwatch.core.names import SessionRef
from anchorwatch.edges import Edge, around
from anchorwatch.journal.register import Register
from anchorwatch.service.context import Clock
from anchorwatch.topology.streams import TICKS
from anchorwatch.topology.subjects import SLOT_FIRED, SLOT_SCHEDULE, SessionSubjects

KNOWN_MAX = 4096
TRUST_S_MAX = 60.0
"""Another planner may take the tick, and a clock may be set: a timer that was seen is trusted no longer than this."""
CLOCKS_MS_MAX = 1_000
"""Clocks that differ by less count as equal."""


@dataclass(frozen=True, slots=True)
class WakeupTimer:
    """``subject``: where the timer is set; ``target``: where its tick arrives."""

    subject: str
    target: str


def timer_of_session(ref: SessionRef) -> WakeupTimer:
    """The timer of a session."""
    subjects = SessionSubjects(ref)
    return WakeupTimer(subjects.tick_schedule, subjects.tick_fired)


def timer_of_schedule(workspace: str, name: str) -> WakeupTimer:
    """The timer of a schedule that a person made."""
    tokens = {"workspace": workspace, "name": name}
    return WakeupTimer(SLOT_SCHEDULE.at(**tokens), SLOT_FIRED.at(**tokens))


@dataclass(frozen=True, slots=True)
class _Current:
    """The instant of a timer as the server has it, and the sequence of its message; 0: there is none."""

    at_ms: int = 0
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class _Known:
    """The instant of a timer, trusted until ``until_s``, in the loop's time."""

    at_ms: int
    until_s: float


class WakeupTimers:
    """Sets timers, and remembers them."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._known: OrderedDict[WakeupTimer, _Known] = OrderedDict()
        self._ahead_ms, self._ahead_until_s = 0, 0.0

    def on_fired(self, timer: WakeupTimer, server_ms: int) -> None:
        """A timer's tick arrived, at ``server_ms`` by the server's clock: forget the timer.

        A tick from the future proves that the server's clock is ahead. A timer that ignores this fires at once, each time.
        """
        self._known.pop(timer, None)
        ahead_ms = server_ms - self._clock.now_ms()
        self._ahead_ms = ahead_ms if ahead_ms > CLOCKS_MS_MAX else 0
        self._ahead_until_s = asyncio.get_running_loop().time() + TRUST_S_MAX

    async def ensure(self, timer: WakeupTimer, at_ms: int) -> None:
        """Make the timer fire at ``at_ms`` or earlier.

        Raises:
            Unavailable: not confirmed; ask again.
        """
        known = self._known.get(timer)
        if known and known.at_ms <= at_ms and asyncio.get_running_loop().time() < known.until_s:
            return

        async def load() -> _Current:
            return await self._current(timer.subject)

        async def store(current: _Current, wanted_ms: int) -> _Current:
            message = Message(
                timer.subject,
                json.dumps({"at_ms": wanted_ms}).encode(),
                expect=Expect(timer.subject, current.sequence),
                schedule=Schedule(self._server_ms(wanted_ms), timer.target),
            )
            try:
                with around(Edge.PLANNER_SCHEDULE_BEFORE):
                    ack = await self._bus.publish(message)
            except WrongLastSequence:
                raise Fenced(f"{timer.subject} was written by another planner") from None
            return _Current(wanted_ms, ack.sequence)

        def decide(current: _Current) -> int | None:
            return None if self._clock.now_ms() < current.at_ms <= at_ms else at_ms

        after = await Register(timer.subject, load, store).change(decide)
        self._remember(timer, after.at_ms)

    def _server_ms(self, at_ms: int) -> int:
        """The instant on the server's clock, corrected by the lead that the last tick showed."""
        fresh = asyncio.get_running_loop().time() < self._ahead_until_s
        return at_ms + self._ahead_ms if fresh else at_ms

    async def _current(self, subject: str) -> _Current:
        page = await self._bus.last(TICKS, [subject])
        if not page.messages:
            return _Current()
        stored = page.messages[0]
        return _Current(int(json.loads(stored.payload)["at_ms"]), stored.sequence)

    def _remember(self, timer: WakeupTimer, at_ms: int) -> None:
        # This process's clock may be set back: then the instant is in the future again, though the tick has arrived.
        left_s = min((at_ms - self._clock.now_ms()) / 1000, TRUST_S_MAX)
        self._known[timer] = _Known(at_ms, asyncio.get_running_loop().time() + left_s)
        self._known.move_to_end(timer)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
