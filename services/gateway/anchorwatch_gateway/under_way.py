"""Requests that come while the same one is under way wait for it, and are answered as it is.

A thousand at once under one key are one order. Each for itself would find the receipt of the first only one after the other,
and the last ones would have to be sent away. Between processes the journal decides, as ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import TypeVar

T = TypeVar("T")


class UnderWay:
    """What is being done now. A thing is the same where all of ``what`` is: whose it is, its key, and what its body says."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[object]] = {}

    async def share(self, what: Hashable, do: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """What ``do`` gives, and whether somebody else had begun it. It takes as long as ``do``, and raises what that raises.

        It goes on when whoever began it is gone, since others may wait for it.
        """
        task = self._tasks.get(what)
        joined = task is not None
        if task is None:
            task = asyncio.ensure_future(_run(do))
            self._tasks[what] = task
            task.add_done_callback(lambda done: self._end(what, done))
        # The type is that of the caller's own `do`: the same request asks for the same thing.
        return await asyncio.shield(task), joined  # type: ignore[arg-type]

    def _end(self, what: Hashable, done: asyncio.Task[object]) -> None:
        del self._tasks[what]
        if not done.cancelled():
            # Where nobody waits any more, nobody is told.
            done.exception()


async def _run(do: Callable[[], Awaitable[T]]) -> T:
    return await do()
