"""Extends the ack wait of every delivery in progress, so that the ack wait can be short.

A short ack wait returns the work of a dead process soon; the extension lets a live process take its time (ADR 3).
"""

from __future__ import annotations

import asyncio

from anchorwatch.bus.port import Delivery

ACK_WAIT_S = 2.0
"""The time until a delivery of a silent process is delivered again."""
INTERVAL_S = 0.5


class KeepAlive:
    """Extends all deliveries of a process in one task."""

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._held: dict[int, Delivery] = {}

    def hold(self, delivery: Delivery) -> None:
        """Extend the delivery from now on."""
        self._held[id(delivery)] = delivery

    def drop(self, delivery: Delivery) -> None:
        """Stop extending a delivery that is answered, or left to redelivery."""
        self._held.pop(id(delivery), None)

    async def run(self) -> None:
        """Extend deliveries until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            for delivery in tuple(self._held.values()):
                await delivery.in_progress()
