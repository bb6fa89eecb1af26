"""A durable consumer that a service reads until it stops.

A new process does not wait until the unanswered messages of its predecessor are delivered again: `Intake.unfinished` reads them
from the stream. They are still delivered again later, so their handling must be idempotent, as that of every message.
"""

from __future__ import annotations

import asyncio

from anchorwatch.bus.port import Bus, Consumer, ConsumerSpec, Delivery, Stored
from anchorwatch.core.errors import NotFound, Unavailable

FETCH_S = 5.0
RETRY_S = 0.25
UNFINISHED_MAX = 1024
CRASHES_MAX = 2
_PAGE = 256


class Intake:
    """One durable consumer. ``stopping`` ends every wait; ``crashes`` as in `ServiceContext`."""

    def __init__(self, bus: Bus, spec: ConsumerSpec, stopping: asyncio.Event, crashes: int = 0) -> None:
        self._bus = bus
        self._spec = spec
        self._stopping = stopping
        self._crashes = crashes
        self._consumer: Consumer | None = None
        self._wait: asyncio.Timeout | None = None
        self._watch: asyncio.Task[None] | None = None
        self.times = 0
        """The number of times the consumer was attached."""

    async def open(self) -> None:
        """Attach to the consumer; waits for the bus without a limit.

        Raises:
            ConfigDiffers: the consumer exists with another configuration. Denied.
        """
        if self._watch is None:
            self._watch = asyncio.create_task(self._end_wait(), name=f"stop of {self._spec.durable}")
        while self._consumer is None and not self._stopping.is_set():
            try:
                self._consumer = await self._bus.consumer(self._spec)
                self.times += 1
            except Unavailable:
                await asyncio.sleep(RETRY_S)

    async def unfinished(self) -> list[Stored]:
        """The delivered messages without an ack, oldest first, at most `UNFINISHED_MAX`; empty if they cannot be read now.

        It is also empty after repeated crashes of this instance: one of the messages may be the cause, and only deliveries
        are counted.
        """
        if self._crashes > CRASHES_MAX:
            return []
        try:
            return await self._unfinished()
        except (Unavailable, NotFound):
            return []

    async def _unfinished(self) -> list[Stored]:
        if self._consumer is None:
            return []
        state = await self._consumer.state()
        if not state.ack_pending:
            return []
        unfinished: list[Stored] = []
        for filter_ in self._spec.filters:
            start = state.ack_floor_sequence + 1
            while start <= state.delivered_sequence and len(unfinished) < UNFINISHED_MAX:
                page = await self._bus.range(self._spec.stream, filter_, start, limit=_PAGE)
                unfinished += [each for each in page.messages if each.sequence <= state.delivered_sequence]
                if not page.more:
                    break
                start = page.messages[-1].sequence + 1
        return sorted(unfinished, key=lambda stored: stored.sequence)[:UNFINISHED_MAX]

    async def next(self, limit: int) -> list[Delivery]:
        """The next messages; empty after `FETCH_S` without any, and once the service stops."""
        await self.open()
        if self._consumer is None or self._stopping.is_set():
            return []
        try:
            # No extra task: this path handles every message.
            async with asyncio.timeout(None) as self._wait:
                return await self._consumer.fetch(limit, FETCH_S)
        except TimeoutError:
            # The service stops. The consumer keeps the messages that arrived meanwhile.
            return []
        except NotFound:
            # A person deleted the consumer. A new one begins at the start of the stream, which costs time and repeats no effect.
            self._consumer = None
            return []
        finally:
            self._wait = None

    async def _end_wait(self) -> None:
        await self._stopping.wait()
        if self._wait is not None:
            self._wait.reschedule(0)

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
            self._watch = None
        if self._consumer is not None:
            await self._consumer.close()
            self._consumer = None
