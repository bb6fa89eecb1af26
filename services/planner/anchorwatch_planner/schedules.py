"""When to look again at a session, or at a schedule that a person made: one replaceable bell for each.

The server keeps it, as a delayed message in ``TICKS``.

A bell is only ever moved to an earlier instant, and by compare-and-set, so a planner with an old view
cannot replace a P0 wake by its heartbeat. One that rings too early costs a look, which sets the next one; so
most turns set none.
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
from anchorwatch.topology.subjects import SLOT_FIRED, SLOT_SCHEDULE, SessionSubjects

KNOWN_MAX = 4096
TRUST_S_MAX = 60.0
"""Another planner may take the tick, and a clock may be set: what was seen of a schedule says little after this long."""
ATTEMPTS_MAX = 8
CLOCKS_MS_MAX = 1_000
"""Clocks that are no further apart are taken for one."""


@dataclass(frozen=True, slots=True)
class Bell:
    """Where a bell is set, and where its tick comes."""

    subject: str
    target: str


def bell_of_session(ref: SessionRef) -> Bell:
    """The bell of a session."""
    subjects = SessionSubjects(ref)
    return Bell(subjects.tick_schedule, subjects.tick_fired)


def bell_of_schedule(shard: str, workspace: str, name: str) -> Bell:
    """The bell of a schedule that a person made."""
    tokens = {"shard": shard, "workspace": workspace, "name": name}
    return Bell(SLOT_SCHEDULE.at(**tokens), SLOT_FIRED.at(**tokens))


@dataclass(frozen=True, slots=True)
class _Known:
    """A bell that was seen to be set; that is believed until ``until_s``, in the loop's time."""

    at_ms: int
    until_s: float


class Schedules:
    """Sets bells, and remembers what it set."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._known: OrderedDict[Bell, _Known] = OrderedDict()
        self._ahead_ms, self._ahead_until_s = 0, 0.0

    def rang(self, bell: Bell, server_ms: int) -> None:
        """Its tick came, at this instant by the server's clock: what was known of it no longer holds.

        A tick from the future says that the server's clock is ahead. A bell that is set without regard to that rings at once, and
        again each time that it is set anew.
        """
        self._known.pop(bell, None)
        ahead_ms = server_ms - self._clock.now_ms()
        self._ahead_ms = ahead_ms if ahead_ms > CLOCKS_MS_MAX else 0
        self._ahead_until_s = asyncio.get_running_loop().time() + TRUST_S_MAX

    async def ensure(self, bell: Bell, at_ms: int) -> None:
        """See to it that the bell rings at ``at_ms`` or before.

        Raises:
            Unavailable: not confirmed; ask again.
        """
        known = self._known.get(bell)
        if known and known.at_ms <= at_ms and asyncio.get_running_loop().time() < known.until_s:
            return
        for _ in range(ATTEMPTS_MAX):
            standing_ms, sequence = await self._standing(bell.subject)
            if self._clock.now_ms() < standing_ms <= at_ms:
                self._remember(bell, standing_ms)
                return
            message = Message(
                bell.subject,
                json.dumps({"at_ms": at_ms}).encode(),
                expect=Expect(bell.subject, sequence),
                schedule=Schedule(self._by_the_server(at_ms), bell.target),
            )
            try:
                reached(Edge.PLANNER_SCHEDULE_BEFORE)
                await self._bus.publish(message)
                reached(Edge.PLANNER_SCHEDULE_AFTER)
            except WrongLastSequence:
                continue
            self._remember(bell, at_ms)
            return
        raise Unavailable(f"{bell.subject} is being written by others")

    def _by_the_server(self, at_ms: int) -> int:
        """The instant on the server's clock, as far as that is known to be ahead."""
        fresh = asyncio.get_running_loop().time() < self._ahead_until_s
        return at_ms + self._ahead_ms if fresh else at_ms

    async def _standing(self, subject: str) -> tuple[int, int]:
        page = await self._bus.last(TICKS, [subject])
        if not page.messages:
            return 0, 0
        stored = page.messages[0]
        return int(json.loads(stored.payload)["at_ms"]), stored.sequence

    def _remember(self, bell: Bell, at_ms: int) -> None:
        # Its own clock may be set back: then the instant lies ahead once more, and the tick has come all the same.
        left_s = min((at_ms - self._clock.now_ms()) / 1000, TRUST_S_MAX)
        self._known[bell] = _Known(at_ms, asyncio.get_running_loop().time() + left_s)
        self._known.move_to_end(bell)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
