"""A client's connection to the simulated server, and its permissions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from anchorwatch.bus.port import Disconnected
from anchorwatch.testing.bus.clock import SimClock
from anchorwatch.topology.subjects import matches

_T = TypeVar("_T")

# How long a call on a dead connection takes to fail: above 0, so that time passes in a loop that only retries.
DEAD_CALL_S = 0.05


class Link:
    """One connection. A cut or kill fails every pending call with `Disconnected`."""

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

    # Faults on a test's order.

    def cut(self) -> None:
        """Break the connection. Cuts add up: each needs its own `reconnect`."""
        self._cuts += 1
        self._fail(Disconnected("the connection was lost"))

    def reconnect(self) -> None:
        if self._cuts == 1:
            self.connections += 1
        self._cuts = max(0, self._cuts - 1)
        self._wake()

    def freeze(self) -> None:
        """Stop the client's process: its calls complete, but return only after `thaw`."""
        self._frozen = True

    def thaw(self) -> None:
        self._frozen = False
        self._wake()

    def kill(self) -> None:
        self.killed = True
        self._frozen = False
        self._fail(Disconnected("the client was killed"))
        self._wake()

    def close(self) -> None:
        self.closed = True
        self._fail(Disconnected("the bus was closed"))
        self._wake()

    # Calls of its client.

    async def up(self, timeout_s: float) -> None:
        """Wait until it is connected.

        Raises:
            Disconnected: it is not connected after ``timeout_s``, or the client was closed or killed.
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
        """Let the time of one message pass; at 0, let the other tasks run once.

        Raises:
            Disconnected: the connection broke during that time.
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
        """The future's result; a frozen client gets it only after `thaw`.

        Raises:
            Disconnected: the connection broke first.
        """
        self._waiting[future] = None
        try:
            return await future
        finally:
            del self._waiting[future]
            await self._thawed()

    async def _thawed(self) -> None:
        while self._frozen:
            await self._woken(None)

    async def _woken(self, timeout_s: float | None) -> None:
        """Wait until the state of this connection changes."""
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


@dataclass(frozen=True, slots=True)
class SimUser:
    """Allow lists of subjects; None allows everything.

    A call other than a publish is checked by the API subject that the real bus sends it to. So a list that works here
    has the right form.
    """

    name: str
    publish: tuple[str, ...] | None = None
    subscribe: tuple[str, ...] | None = None

    def may_publish(self, subject: str) -> bool:
        return _allows(self.publish, subject)

    def may_subscribe(self, subject: str) -> bool:
        return _allows(self.subscribe, subject)


def _allows(patterns: Sequence[str] | None, subject: str) -> bool:
    return patterns is None or any(matches(each, subject) for each in patterns)


__all__ = ["DEAD_CALL_S", "Link", "SimUser"]
