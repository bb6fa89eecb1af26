"""Nothing starts on a journal before its witnesses have compared its end with what they know.

They compare at the start and after each reconnect, since a server that was restarted may have cut the end off. The supervisor
compares before any service starts. Where there is none, the memory service knows best how far the journal reached; so it is
asked first, where there is one.
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
"""A memory that is away longer is not waited for: it holds the mesh once it is back."""
ASK_S, AGAIN_S = 2.0, 0.2
VERB = "checked"


class JournalGuard:
    """What planners and executors wait for before they start anything."""

    def __init__(self, bus: Bus, stream: str, clock: Clock, log: structlog.stdlib.BoundLogger) -> None:
        self._bus = bus
        self._stream = stream
        self._clock = clock
        self._log = log
        self._checked = 0
        self._lock = asyncio.Lock()

    async def check(self) -> None:
        """Return once the journal is compared on this connection; where it is shorter than it was, the mesh is held by then.

        Raises:
            Unavailable: that is not known.
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
                answer = json.loads(await self._bus.request(RPC_MEMORY.at(verb=VERB), b"{}", ASK_S))
            except (Unavailable, ValueError):
                answer = {"error": {}}
            if "error" not in answer:
                return
            await self._clock.sleep(AGAIN_S)
        self._log.warning("memory has not confirmed the end of the journal", waited_s=MEMORY_S_MAX)
