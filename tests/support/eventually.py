"""Waits in an event loop for a condition, never for a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from anchorwatch.core.errors import Unavailable

T = TypeVar("T")
POLL_S = 0.01
RETRY_S = 0.05


async def eventually(condition: Callable[[], object], within_s: float = 30.0) -> None:
    """Wait until ``condition()`` is true.

    Raises:
        TimeoutError: it is not true within ``within_s``.
    """
    async with asyncio.timeout(within_s):
        while True:
            if condition():
                return
            await asyncio.sleep(POLL_S)


async def persist(attempt: Callable[[], Awaitable[T]], within_s: float = 30.0) -> T:
    """Retry while the bus is unavailable, as its callers do.

    Raises:
        TimeoutError: it is still unavailable after ``within_s``.
    """
    async with asyncio.timeout(within_s):
        while True:
            try:
                return await attempt()
            except Unavailable:
                await asyncio.sleep(RETRY_S)
