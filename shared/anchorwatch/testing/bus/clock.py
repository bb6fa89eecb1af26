"""The simulation's time.

It follows the running loop's clock: `VirtualTimeLoop` moves it by jumps, a plain loop in real time. Under a plain loop
`advance` moves it further and fires every timer on the way. Nothing here reads a wall clock.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

from anchorwatch.testing.bus.loop import VirtualTimeLoop

EPOCH_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
SETTLE_ROUNDS = 50
RESOLUTION_S = 1e-6  # sums of floats: a timer must never be early by a rounding, and spin


class Timer:
    """A scheduled call."""

    __slots__ = ("callback", "due_s", "order")

    def __init__(self, due_s: float, order: int, callback: Callable[[], None]) -> None:
        self.due_s = due_s
        self.order = order
        self.callback: Callable[[], None] | None = callback

    def __lt__(self, other: Timer) -> bool:
        return (self.due_s, self.order) < (other.due_s, other.order)

    def cancel(self) -> None:
        self.callback = None


class SimClock:
    """Time of one `SimServer`. ``now_s`` only grows; ``now_ms`` is the calendar, which `step` may set back."""

    def __init__(self, epoch_ms: int = EPOCH_MS) -> None:
        self._epoch_ms = epoch_ms
        self._loop: asyncio.AbstractEventLoop | None = None
        self._base_s = 0.0
        self._ahead_s = 0.0
        self._stepped_ms = 0
        self._timers: list[Timer] = []
        self._orders = itertools.count()
        self._handle: asyncio.TimerHandle | None = None
        self._handle_due_s = 0.0

    def now_s(self) -> float:
        """Seconds since this clock was first read in a running loop; before that, 0."""
        loop = self._bound()
        return 0.0 if loop is None else loop.time() - self._base_s + self._ahead_s

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        # Rounded before it is cut: 1.1 s must not become 1099 ms.
        return self._epoch_ms + self._stepped_ms + int(round(self.now_s() * 1000, 3))

    def reached(self, due_s: float) -> bool:
        """Whether the clock has reached that time."""
        return due_s <= self.now_s() + RESOLUTION_S

    def step(self, seconds: float) -> None:
        """Set the calendar forward or back, as NTP may. Timers are not affected: they follow `now_s`."""
        self._stepped_ms += round(seconds * 1000)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(self.now_s() + max(delay_s, 0.0), next(self._orders), callback)
        heapq.heappush(self._timers, timer)
        self._arm()
        return timer

    async def sleep(self, seconds: float) -> None:
        """Wait; at 0, let the other tasks run once."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: None if done.done() else done.set_result(None))
        try:
            await done
        finally:
            timer.cancel()

    async def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, fire every timer on the way, and let the tasks settle."""
        target_s = self.now_s() + seconds
        if isinstance(self._loop, VirtualTimeLoop):
            await asyncio.sleep(seconds)
        else:
            await _settle()
            while self._timers and self._timers[0].due_s <= target_s:
                self._ahead_s += max(0.0, self._timers[0].due_s - self.now_s())
                self._fire()
                await _settle()
            self._ahead_s += max(0.0, target_s - self.now_s())
            self._fire()
        await _settle()

    def _bound(self) -> asyncio.AbstractEventLoop | None:
        if self._loop is None:
            try:
                self._loop = asyncio.get_running_loop()
            except RuntimeError:
                return None
            self._base_s = self._loop.time()
        return self._loop

    def _fire(self) -> None:
        """Run the timers that are due."""
        if self._handle is not None:
            self._handle.cancel()  # `advance` may have passed its time
            self._handle = None
        while self._timers and (self._timers[0].callback is None or self.reached(self._timers[0].due_s)):
            callback = heapq.heappop(self._timers).callback
            if callback is not None:
                callback()
        self._arm()

    def _arm(self) -> None:
        """Set one timer of the loop for the earliest of ours."""
        loop = self._bound()
        if loop is None:
            raise RuntimeError("the simulation's timers need a running event loop")
        if self._handle is not None:
            if self._timers and self._timers[0].due_s >= self._handle_due_s:
                return
            self._handle.cancel()
            self._handle = None
        if self._timers:
            self._handle_due_s = self._timers[0].due_s
            self._handle = loop.call_at(self._handle_due_s + self._base_s - self._ahead_s, self._on_handle)

    def _on_handle(self) -> None:
        self._handle = None
        self._fire()


async def _settle() -> None:
    for _ in range(SETTLE_ROUNDS):
        await asyncio.sleep(0)


__all__ = ["EPOCH_MS", "RESOLUTION_S", "SimClock", "Timer"]
