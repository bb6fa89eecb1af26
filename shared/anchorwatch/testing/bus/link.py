"""A client's connection to the simulated server: it can be cut, frozen and killed, and fails what waits on it."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from anchorwatch.bus.port import Disconnected
from anchorwatch.testing.bus.clock import SimClock

_T = TypeVar("_T")

# How long a call on a dead connection takes to fail: above 0, so that a loop that only retries lets time pass.
DEAD_CALL_S = 0.05


class Link:
    """One connection. What waits when it is cut or killed fails at once with `Disconnected`."""

    def __init__(self, clock: SimClock, name: str) -> None:
        self.name = name
        self.killed = False
        self.closed = False
        self._clock = clock
        self.connections = 1
        self._cuts = 0
        self._frozen = False
        self._waiting: dict[asyncio.Future[Any], None] = {}
        self._sleepers: dict[asyncio.Future[None], None] = {}

    @property
    def connected(self) -> bool:
        return not (self._cuts or self.killed or self.closed)

    # What a test does to it.

    def cut(self) -> None:
        """Break it. Cuts add up: it is whole again after as many `mend`."""
        self._cuts += 1
        self._fail(Disconnected("the connection was lost"))

    def mend(self) -> None:
        if self._cuts == 1:
            self.connections += 1
        self._cuts = max(0, self._cuts - 1)
        self._wake()

    def freeze(self) -> None:
        """Stop the process behind it: what it waits for happens, and it takes note only after `thaw`."""
        self._frozen = True

    def thaw(self) -> None:
        self._frozen = False
        self._wake()

    def kill(self) -> None:
        """For ever."""
        self.killed = True
        self._frozen = False
        self._fail(Disconnected("the client was killed"))
        self._wake()

    def close(self) -> None:
        self.closed = True
        self._fail(Disconnected("the bus was closed"))
        self._wake()

    # What its client does.

    async def up(self, timeout_s: float) -> None:
        """Wait until it is connected.

        Raises:
            Disconnected: it is not, after ``timeout_s``; or the client was closed or killed.
        """
        await self._thawed()
        deadline_s = self._clock.now_s() + timeout_s
        while self._cuts and not (self.closed or self.killed) and not self._clock.reached(deadline_s):
            await self._woken(deadline_s - self._clock.now_s())
        if not self.connected:
            if self.closed or self.killed:
                await self._clock.sleep(DEAD_CALL_S)
            raise Disconnected(f"{self.name} has no connection")

    async def travel(self, seconds: float) -> None:
        """Time on the way to the server or back; 0 lets the others run once.

        Raises:
            Disconnected: the connection broke meanwhile.
        """
        if seconds <= 0:
            await asyncio.sleep(0)
            await self._thawed()
            if not self.connected:
                raise Disconnected(f"{self.name} lost its connection")
            return
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(seconds, lambda: None if arrived.done() else arrived.set_result(None))
        try:
            await self.wait(arrived)
        finally:
            timer.cancel()

    async def wait(self, future: asyncio.Future[_T]) -> _T:
        """The future's result; when the client was frozen meanwhile, only after it goes on.

        Raises:
            Disconnected: the connection broke first.
        """
        self._waiting[future] = None
        try:
            return await future
        finally:
            del self._waiting[future]
            await self._thawed()

    # Inside.

    async def _thawed(self) -> None:
        while self._frozen:
            await self._woken(None)

    async def _woken(self, timeout_s: float | None) -> None:
        """Wait for a change of this connection."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = None
        if timeout_s is not None:
            timer = self._clock.call_later(
                timeout_s, lambda: None if woken.done() else woken.set_result(None)
            )
        self._sleepers[woken] = None
        try:
            await woken
        finally:
            del self._sleepers[woken]
            if timer is not None:
                timer.cancel()

    def _fail(self, error: Disconnected) -> None:
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(error)

    def _wake(self) -> None:
        for future in list(self._sleepers):
            if not future.done():
                future.set_result(None)


__all__ = ["DEAD_CALL_S", "Link"]
