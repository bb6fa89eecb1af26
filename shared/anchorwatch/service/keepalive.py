"""Says of every delivery in hand that it is being worked on, so that the ack wait may be short.

A short ack wait is what makes a dead process's work come back soon; this is what lets a living one take its time.
"""

from __future__ import annotations

import asyncio

from anchorwatch.bus.port import Delivery

ACK_WAIT_S = 2.0
"""How long a delivery stays with a process that has gone silent."""
INTERVAL_S = 0.5


class KeepAlive:
    """One task for all deliveries of a process."""

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._held: dict[int, Delivery] = {}

    def hold(self, delivery: Delivery) -> None:
        """It is in hand from now on."""
        self._held[id(delivery)] = delivery

    def drop(self, delivery: Delivery) -> None:
        """It was answered, or is left to redelivery."""
        self._held.pop(id(delivery), None)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            for delivery in tuple(self._held.values()):
                await delivery.in_progress()
