"""Waits for a condition, never for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
POLL_S = 0.01


def until(condition: Callable[[], T], within_s: float = 30.0, what: str = "") -> T:
    """The first true value of ``condition``.

    Raises:
        AssertionError: there is none within ``within_s``.
    """
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"did not hold within {within_s:g} s: {what or condition}")
        time.sleep(POLL_S)
    return value


async def eventually(condition: Callable[[], Awaitable[T]], within_s: float = 30.0, what: str = "") -> T:
    """As `until`, for a condition on the event loop.

    Raises:
        AssertionError: there is none within ``within_s``.
    """
    deadline = time.monotonic() + within_s
    while not (value := await condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"did not hold within {within_s:g} s: {what or condition}")
        await asyncio.sleep(POLL_S)
    return value


def is_running(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    return _state_of(pid) not in ("Z", "X")


def is_stopped(pid: int) -> bool:
    """Whether the kernel has stopped the process, which SIGSTOP causes after a moment."""
    return _state_of(pid) == "T"


def _state_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:  # noqa: PTH123 - one line, read often
            return stat.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
