"""Before a planner or executor starts work on a journal, its witnesses compare the journal's end with the end that they know.

They compare at the start and after each reconnect, since a restarted server may have cut the end off (INV-917). The supervisor
compares before any service starts. Without a supervisor, the memory service knows the highest end, so this process asks it.
"""

from __future__ import annotations

import asyncio
import json

import structlog

from anchorwatch.bus.port import Bus
from anchorwatch.core.errors import Unavailable
from anchorwatch.journal.truncation import check_end
from anchorwatch.service.context import Clock
from anchorwatch.topology.subjects import MEMORY_CONSUMER, RPC_MEMORY

MEMORY_S_MAX = 5.0
"""The wait for an unavailable memory service; it holds the mesh once it is back."""
REQUEST_S_MAX, RETRY_S = 2.0, 0.2
VERB = "checked"


class JournalGuard:
    """The check that planners and executors complete before they start work."""

    def __init__(self, bus: Bus, stream: str, clock: Clock, log: structlog.stdlib.BoundLogger) -> None:
        self._bus = bus
        self._stream = stream
        self._clock = clock
        self._log = log
        self._checked = 0
        self._lock = asyncio.Lock()

    async def check(self) -> None:
        """Compare the end of the journal once for each connection, and hold the mesh if the journal lost its end.

        Raises:
            Unavailable: the comparison is not complete.
        """
        if self._checked == self._bus.connections:
            return
        async with self._lock:
            if self._checked == (now := self._bus.connections):
                return
            await check_end(self._bus, self._stream)
            await self._ask_memory()
            self._checked = now

    async def _ask_memory(self) -> None:
        consumers = await self._bus.consumer_states(self._stream)
        if not any(name.startswith(MEMORY_CONSUMER) for name in consumers):
            return
        deadline_s = self._clock.elapsed_s() + MEMORY_S_MAX
        while self._clock.elapsed_s() < deadline_s:
            try:
                answer = json.loads(await self._bus.request(RPC_MEMORY.at(verb=VERB), b"{}", REQUEST_S_MAX))
            except (Unavailable, ValueError):
                answer = {"error": {}}
            if "error" not in answer:
                return
            await self._clock.sleep(RETRY_S)
        self._log.warning("journal_end.not_confirmed", service="memory", wait_s=MEMORY_S_MAX)
