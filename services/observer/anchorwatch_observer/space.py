"""Keeps room in `EVENTS`, and reports the number of events by their outcome.

At its limit the server refuses new events (`StreamFull`) and removes none: one that was not routed yet exists nowhere else.
An event that was routed is an input, a dead letter or a count, and stays only as history. Without room for new events a
publisher could silence all others, so the observer removes the oldest routed ones before the stream is full (INV-113).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import structlog
from anchorwatch.bus.port import Bus
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.core.letters import CLOSED
from anchorwatch.journal.letters import read_letter
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.event_counts import write_counts
from anchorwatch.service.provisioning import events_limits
from anchorwatch.service.worker import Unhandleable
from anchorwatch.topology.streams import DEAD, EVENTS
from anchorwatch.topology.subjects import DEAD_LETTER, EVENT_ALL

from anchorwatch_observer.routing import CONSUMER, SERVICE

CHECK_S = 5.0
FULL_SHARE, FREE_SHARE = 0.75, 0.5
"""Above the one share of the stream's bytes it is emptied to the other."""
_PAGE = 256


class EventSpace:
    """Sets the limits of `EVENTS`, and works until ``context.stopping``. ``counts``: by outcome, since the start."""

    def __init__(self, context: ServiceContext, counts: Counter[str]) -> None:
        self._context = context
        self._bus = context.bus
        self._counts = counts
        self._reported: Counter[str] = Counter()
        self._limits = events_limits(context.settings)
        self._limits_set = False

    async def run(self) -> None:
        while not self._context.stopping.is_set():
            try:
                await self._set_limits()
                await free_space(self._bus, self._context.log)
                await self._report()
            except AnchorWatchError as error:
                self._context.log.warning("events.space_unknown", reason=error.message)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_S):
                    await self._context.stopping.wait()

    async def _set_limits(self) -> None:
        if not self._limits_set:
            await self._bus.set_limits(EVENTS, self._limits)
            self._limits_set = True

    async def _report(self) -> None:
        if self._counts != self._reported:
            counts = self._counts.copy()
            await write_counts(self._bus, self._context.identity.instance, counts)
            self._context.log.info("events.counted", **counts)
            self._reported = counts


async def free_space(bus: Bus, log: structlog.stdlib.BoundLogger) -> int:
    """Remove the oldest routed events if the stream is nearly full; returns their number."""
    removed, limit = 0, (await bus.limits(EVENTS)).bytes_max
    state = await bus.stream_state(EVENTS)
    if limit <= 0 or state.bytes <= limit * FULL_SHARE:
        return 0
    end = await _first_needed(bus)
    while state.bytes > limit * FREE_SHARE and state.first_sequence < end:
        # Half of them at a time: their sizes are not known.
        keep_from = state.first_sequence + (end - state.first_sequence + 1) // 2
        removed += await bus.purge(EVENTS, EVENT_ALL, keep_from)
        state = await bus.stream_state(EVENTS)
    log.warning("events.removed", count=removed, bytes=state.bytes, bytes_max=limit)
    return removed


async def _first_needed(bus: Bus) -> int:
    """The first sequence that was not routed yet, or that a dead letter still needs."""
    needed = (await bus.consumer_states(EVENTS))[str(CONSUMER.durable)].ack_floor_sequence + 1
    start, more = 1, True
    while more:
        page = await bus.range(DEAD, DEAD_LETTER.filter(service=SERVICE), start, limit=_PAGE)
        for stored in page.messages:
            letter = read_letter(stored).letter
            # A malformed event is never routed, and a publisher could send any number of them.
            if letter and letter.state not in CLOSED and letter.fault.code != Unhandleable.code:
                needed = min(needed, letter.address.sequence)
        more = page.more
        start = page.messages[-1].sequence + 1 if page.messages else start
    return needed
