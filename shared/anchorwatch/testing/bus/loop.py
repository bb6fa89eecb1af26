"""An event loop whose time is a number: nothing waits, and one seed gives one run.

When no callback is ready, the loop sets its clock to the next timer instead of waiting for it. So ``asyncio.sleep``,
``asyncio.timeout`` and ``asyncio.wait_for`` work as ever, hours pass in milliseconds, and a run that waits for
something that can no longer happen ends with `Deadlock` rather than never.

What makes a run repeat exactly: the order of ready callbacks is chosen by the seed; tasks have a hash of their own,
since asyncio keeps them in sets, whose order would otherwise follow memory addresses; there is no selector (a socket
cannot be opened), and what is sent to a thread runs at once, in the loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from anchorwatch.testing.bus.chance import seeded_chance

if TYPE_CHECKING:
    _AnyTask = asyncio.Task[Any]
else:
    _AnyTask = asyncio.Task

_T = TypeVar("_T")

TIME_LIMIT_S = 366 * 24 * 3600.0
ROUNDS_WITHOUT_TIME_MAX = 100_000
TASKS_SHOWN_MAX = 20
CANCEL_ROUNDS_MAX = 10


class SimulationStuck(RuntimeError):
    """The simulation cannot go on."""


class Deadlock(SimulationStuck):
    """Every task waits for something that nothing will ever do."""


class Livelock(SimulationStuck):
    """Tasks wake each other without end, and time stands still."""


class TimeLimitReached(SimulationStuck):
    """The main coroutine did not end within the simulated time it had."""


class SimTask(_AnyTask):
    """A task that sets order by when it was made, not by where it lies in memory. ``made_in``: the context that it runs in."""

    made_in: contextvars.Context
    _order: int

    def __new__(cls, *_args: object, loop: VirtualTimeLoop, **_options: object) -> Self:
        task = super().__new__(cls)
        # Before __init__: that puts the task into a set.
        task._order = loop.next_task_order()
        return task

    def __hash__(self) -> int:
        return self._order

    def __eq__(self, other: object) -> bool:
        return self is other


class _NoSelector:
    """Stands where asyncio expects its selector; moves the clock instead of waiting."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop

    def select(self, timeout_s: float | None) -> tuple[()]:
        if timeout_s is None or timeout_s > 0:
            self._loop.jump()
        return ()


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """The loop. ``seed`` chooses among ready callbacks; ``shuffle`` False keeps asyncio's first in, first out.

    Times in seconds; the clock starts at 0.
    """

    # Of BaseEventLoop; typeshed does not list them.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, seed: int = 0, *, shuffle: bool = True, time_limit_s: float = TIME_LIMIT_S) -> None:
        super().__init__()
        self.set_debug(False)  # debug mode measures with the wall clock
        self.now_s = 0.0
        self._limit_s = time_limit_s
        self._random = random.Random(f"loop {seed}")  # noqa: S311 - to repeat is the point
        self._shuffle = shuffle
        self._orders = itertools.count(1)
        self._idle_rounds = 0
        self._selector = _NoSelector(self)
        self._clock_resolution = 1e-9
        self.set_task_factory(_make_task)

    def time(self) -> float:
        return self.now_s

    def next_task_order(self) -> int:
        return next(self._orders)

    def jump(self) -> None:
        """Set the clock to the next timer.

        Raises:
            Deadlock: there is none.
            TimeLimitReached: it lies beyond the limit.
        """
        if not self._scheduled:
            raise Deadlock("nothing is scheduled, and every task waits:\n" + self.waiting())
        when_s = self._scheduled[0].when()
        if when_s > self._limit_s:
            raise TimeLimitReached(
                f"still running after {self._limit_s} simulated seconds:\n" + self.waiting()
            )
        self.now_s = max(self.now_s, when_s)
        self._idle_rounds = 0

    def run_in_executor(
        self,
        executor: object,  # noqa: ARG002 - there are no threads
        func: Callable[..., _T],
        *args: object,
    ) -> asyncio.Future[_T]:
        """Run ``func`` at once: a thread would bring an order that no seed can repeat."""
        future: asyncio.Future[_T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - the future carries it
            future.set_exception(error)
        return future

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def _process_events(self, events: tuple[()]) -> None:
        """Nothing comes from outside."""

    def _write_to_self(self) -> None:
        """Nobody waits in a selector."""

    def _run_once(self) -> None:
        """One round: release what is due now, choose an order, and let asyncio run it."""
        self._idle_rounds += 1
        if self._idle_rounds > ROUNDS_WITHOUT_TIME_MAX:
            raise Livelock(f"{ROUNDS_WITHOUT_TIME_MAX} rounds without time passing:\n{self.waiting()}")
        ready, scheduled = self._ready, self._scheduled
        # Timers due at this moment take part in the choice: on a real machine, too, either may come first.
        while scheduled and not scheduled[0].cancelled() and scheduled[0].when() <= self.now_s:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001 - as BaseEventLoop does
            ready.append(handle)
        if self._shuffle and len(ready) > 1:
            order = list(ready)
            self._random.shuffle(order)
            ready.clear()
            ready.extend(order)
        super()._run_once()  # type: ignore[misc]  # not in typeshed

    def waiting(self) -> str:
        """One line for each unfinished task: where it waits."""
        tasks = in_order(asyncio.all_tasks(self))
        lines = [f"  {_where(task)}" for task in tasks[:TASKS_SHOWN_MAX]]
        if len(tasks) > TASKS_SHOWN_MAX:
            lines.append(f"  and {len(tasks) - TASKS_SHOWN_MAX} more")
        return "\n".join(lines)


def in_order(tasks: Iterable[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """Tasks of a `VirtualTimeLoop` in the order in which they were made."""
    return sorted(tasks, key=hash)


def run(
    main: Coroutine[Any, Any, _T], seed: int = 0, *, shuffle: bool = True, time_limit_s: float = TIME_LIMIT_S
) -> _T:
    """Run ``main`` in a loop of its own, in virtual time, with chance by seed; the same seed runs the same way.

    Tasks that are left when it ends are cancelled, and run to their end.

    Raises:
        Deadlock, Livelock, TimeLimitReached: the run cannot go on; each says where every task waits.
    """
    loop = VirtualTimeLoop(seed, shuffle=shuffle, time_limit_s=time_limit_s)
    collecting = gc.isenabled()
    # A collection closes forgotten generators, at a moment that depends on what ran before in this process.
    gc.disable()
    try:
        with seeded_chance(seed):
            try:
                return loop.run_until_complete(main)
            finally:
                _finish(loop)
    finally:
        loop.close()
        if collecting:
            gc.enable()


def _finish(loop: VirtualTimeLoop) -> None:
    """Cancel what is left and let it end; one that survives `CANCEL_ROUNDS_MAX` cancellations is a defect."""
    for _ in range(CANCEL_ROUNDS_MAX):
        left = in_order(asyncio.all_tasks(loop))
        if not left:
            break
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())


def _make_task(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    **options: Any,  # noqa: ANN401 - what this Python's create_task hands over
) -> asyncio.Task[Any]:
    context = options.pop("context", None)
    if context is None:
        context = contextvars.copy_context()
    task = SimTask(coro, loop=cast("VirtualTimeLoop", loop), context=context, **options)
    task.made_in = context
    return task


def _where(task: asyncio.Task[Any]) -> str:
    stack = task.get_stack(limit=1)
    name = getattr(task.get_coro(), "__qualname__", "a task")
    return f"{name} at {stack[-1].f_code.co_filename}:{stack[-1].f_lineno}" if stack else name


__all__ = [
    "Deadlock",
    "Livelock",
    "SimTask",
    "SimulationStuck",
    "TimeLimitReached",
    "VirtualTimeLoop",
    "in_order",
    "run",
]
