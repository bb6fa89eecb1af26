"""An event loop in virtual time: one seed gives one run.

When no callback is ready, the loop sets its clock to the next timer instead of waiting for it. ``asyncio.sleep``,
``asyncio.timeout`` and ``asyncio.wait_for`` work as usual, and hours pass in milliseconds. A run in which every task
waits and no timer is set ends with `Deadlock`.

A run repeats exactly for four reasons. The seed chooses the order of ready callbacks. Tasks are hashed by their order
of creation: asyncio keeps them in sets, which would otherwise follow memory addresses. There is no selector, so no
socket can be opened. Work for a thread runs at once in the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import heapq
import itertools
import os
import random
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

if TYPE_CHECKING:
    _AnyTask = asyncio.Task[Any]
else:
    _AnyTask = asyncio.Task

_T = TypeVar("_T")

TIME_LIMIT_S = 366 * 24 * 3600.0
ROUNDS_WITHOUT_TIME_MAX = 100_000
TASKS_SHOWN_MAX = 20
CANCEL_ROUNDS_MAX = 10
TOKEN_BYTES = 32


class SimulationStuck(RuntimeError):
    """The simulation cannot continue."""


class Deadlock(SimulationStuck):
    """Every task waits, and no timer is set."""


class Livelock(SimulationStuck):
    """Tasks wake each other without end, and time does not advance."""


class TimeLimitReached(SimulationStuck):
    """The main coroutine did not end within the limit of simulated time."""


class SimTask(_AnyTask):
    """A task that sets order by its creation, not by its memory address. ``created_in``: the context that it runs in."""

    created_in: contextvars.Context
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
    """In place of asyncio's selector: it moves the clock instead of waiting."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop

    def select(self, timeout_s: float | None) -> tuple[()]:
        if timeout_s is None or timeout_s > 0:
            self._loop.jump()
        return ()


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """``seed`` chooses among ready callbacks; ``shuffle`` False keeps asyncio's order, first in, first out.

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
        self._random = random.Random(f"loop {seed}")  # noqa: S311 - repeatability is the purpose
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
            Deadlock: no timer is set.
            TimeLimitReached: the next timer is beyond the limit.
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
        """Run ``func`` at once: a seed cannot repeat the order of threads."""
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
        """There are no events from outside."""

    def _write_to_self(self) -> None:
        """There is no selector to wake."""

    def _run_once(self) -> None:
        """One round: release the timers that are due, choose an order, and let asyncio run the callbacks."""
        self._idle_rounds += 1
        if self._idle_rounds > ROUNDS_WITHOUT_TIME_MAX:
            raise Livelock(f"{ROUNDS_WITHOUT_TIME_MAX} rounds without time passing:\n{self.waiting()}")
        ready, scheduled = self._ready, self._scheduled
        # Timers due now take part in the choice: on a real machine, too, either may come first.
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
        """Where each unfinished task waits, one a line."""
        tasks = in_order(asyncio.all_tasks(self))
        lines = [f"  {_where(task)}" for task in tasks[:TASKS_SHOWN_MAX]]
        if len(tasks) > TASKS_SHOWN_MAX:
            lines.append(f"  and {len(tasks) - TASKS_SHOWN_MAX} more")
        return "\n".join(lines)


def in_order(tasks: Iterable[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """Tasks of a `VirtualTimeLoop` in order of creation."""
    return sorted(tasks, key=hash)


@contextlib.contextmanager
def seeded_randomness(seed: int) -> Iterator[None]:
    """Within the block, `secrets`, ``uuid.uuid4``, ``os.urandom`` and the functions of `random` follow ``seed``.

    Services use them for nonces and tokens only; these must be the same in every run of a seed too.
    """
    source = random.Random(f"chance {seed}")  # noqa: S311 - repeatability is the purpose

    def token_bytes(nbytes: int | None = None) -> bytes:
        return source.randbytes(TOKEN_BYTES if nbytes is None else nbytes)

    before = random.getstate(), secrets.token_bytes, os.urandom
    random.seed(f"random {seed}")
    # `token_hex` and `token_urlsafe` call the first, `uuid.uuid4` the second, in whatever way they were imported.
    secrets.token_bytes, os.urandom = token_bytes, source.randbytes
    try:
        yield
    finally:
        secrets.token_bytes, os.urandom = before[1:]
        random.setstate(before[0])


def run(
    main: Coroutine[Any, Any, _T], seed: int = 0, *, shuffle: bool = True, time_limit_s: float = TIME_LIMIT_S
) -> _T:
    """Run ``main`` in a new loop, in virtual time and with seeded randomness; the same seed gives the same run.

    Tasks that are left at the end are cancelled and run to their end.

    Raises:
        Deadlock, Livelock, TimeLimitReached: the run cannot continue; the message says where each task waits.
    """
    loop = VirtualTimeLoop(seed, shuffle=shuffle, time_limit_s=time_limit_s)
    collecting = gc.isenabled()
    # A collection closes forgotten generators at a time that depends on earlier runs in this process.
    gc.disable()
    try:
        with seeded_randomness(seed):
            try:
                return loop.run_until_complete(main)
            finally:
                _finish(loop)
    finally:
        loop.close()
        if collecting:
            gc.enable()


def _finish(loop: VirtualTimeLoop) -> None:
    """Cancel the tasks that are left and let them end; one that survives `CANCEL_ROUNDS_MAX` rounds is a defect."""
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
    **options: Any,  # noqa: ANN401 - the options of this Python's create_task
) -> asyncio.Task[Any]:
    context = options.pop("context", None)
    if context is None:
        context = contextvars.copy_context()
    task = SimTask(coro, loop=cast("VirtualTimeLoop", loop), context=context, **options)
    task.created_in = context
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
