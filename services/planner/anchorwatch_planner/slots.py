"""How many looks a process has under way at once, shared out among workspaces: none has them all, or goes before its turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator


class Slots:
    """``total`` slots, of which one workspace has at most ``share``. Who waits is served workspace by workspace, in turn."""

    def __init__(self, total: int, share: int) -> None:
        self._free = total
        self._share = share
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @contextlib.asynccontextmanager
    async def of(self, workspace: str) -> AsyncIterator[None]:
        """Hold a slot for the length of the block; waits for one."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(workspace, deque()).append(turn)
        self._serve()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(workspace)
            raise
        try:
            yield
        finally:
            self._leave(workspace)

    def _leave(self, workspace: str) -> None:
        self._free += 1
        self._held[workspace] -= 1
        if not self._held[workspace]:
            del self._held[workspace]
        self._serve()

    def _serve(self) -> None:
        while self._free and (workspace := self._next()) is not None:
            queue = self._waiting.pop(workspace)
            turn = queue.popleft()
            if queue:
                # Behind the others.
                self._waiting[workspace] = queue
            if not turn.done():
                self._free -= 1
                self._held[workspace] += 1
                turn.set_result(None)

    def _next(self) -> str | None:
        return next((each for each in self._waiting if self._held[each] < self._share), None)
