"""The kill switches that are on. Following them saves each turn a read.

The copy may be a moment old. That is harmless: executors read the switches after each claim, and start nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import structlog
from anchorwatch.bus.port import Bus, Consumer, ConsumerSpec, Stored
from anchorwatch.core.errors import AnchorWatchError, Damaged
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.switches import Switch, read_switch, subjects_of
from anchorwatch.service.context import Clock
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import SWITCH

BATCH, WAIT_S, AGAIN_S = 32, 20.0, 1.0
FILTER = SWITCH.filter()


class KillSwitches:
    """A copy of the kill switches of all workspaces."""

    def __init__(self, bus: Bus, clock: Clock, log: structlog.stdlib.BoundLogger) -> None:
        self._bus = bus
        self._clock = clock
        self._log = log
        self._on: dict[str, Switch] = {}
        self._through = 0
        self._turned_off = False

    async def read(self) -> None:
        """Read the state of all switches.

        Raises:
            Unavailable: the bus is not available.
        """
        page = await self._bus.last(journal_stream(), [FILTER])
        self._take(page.messages)
        self._through = max(self._through, page.up_to)

    def blocking(self, ref: SessionRef, agent: str) -> Switch | None:
        """The switch that is on for a session of that agent, if there is one."""
        if not self._on:
            return None
        return next((self._on[each] for each in subjects_of(ref, agent) if each in self._on), None)

    async def follow(self, released: Callable[[], Awaitable[None]]) -> None:
        """Follow the switches until cancelled; call ``released`` after one was turned off."""
        consumer: Consumer | None = None
        try:
            while True:
                try:
                    consumer = consumer or await self._attach()
                    await self._next(consumer, released)
                except AnchorWatchError as error:
                    # The bus is not available, or has lost the consumer: attach again, after the last record that is known.
                    self._log.info("switches.reattached", code=error.code)
                    if consumer is not None:
                        with contextlib.suppress(AnchorWatchError):
                            await consumer.close()
                    consumer = None
                    await self._clock.sleep(AGAIN_S)
        finally:
            if consumer is not None:
                with contextlib.suppress(AnchorWatchError):
                    await consumer.close()

    async def _next(self, consumer: Consumer, released: Callable[[], Awaitable[None]]) -> None:
        if self._turned_off:
            await released()
            self._turned_off = False
        deliveries = await consumer.fetch(BATCH, WAIT_S)
        before = set(self._on)
        self._take([each.stored for each in deliveries])
        for each in deliveries:
            await each.ack()
        self._turned_off = bool(before - set(self._on))

    async def _attach(self) -> Consumer:
        spec = ConsumerSpec(journal_stream(), (FILTER,), durable=None, start_sequence=self._through + 1)
        return await self._bus.consumer(spec)

    def _take(self, messages: list[Stored] | tuple[Stored, ...]) -> None:
        for stored in messages:
            if stored.sequence <= self._through:
                continue
            self._through = stored.sequence
            try:
                switch = read_switch(stored)
            except Damaged as error:
                self._log.error("switch.unreadable", sequence=stored.sequence, reason=str(error))
                continue
            if switch.on:
                self._on[stored.subject] = switch
            else:
                self._on.pop(stored.subject, None)
