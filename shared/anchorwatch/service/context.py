"""What a service is given. A service is one coroutine function ``run(context)`` behind the entry-point group ``anchorwatch.services``.

``run`` returns when ``context.stopping`` is set and its work is put down; it may be killed at any moment instead.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from anchorwatch.bus.port import Bus
from anchorwatch.settings import Settings


class Clock(Protocol):
    """Time as data."""

    def now_ms(self) -> int:
        """Unix time, milliseconds."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class WallClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a process is. ``instance`` survives a restart; ``incarnation`` is new each time: a restarted instance knows that
    its former incarnations are dead."""

    service: str
    instance: str
    incarnation: str

    @property
    def execution_id(self) -> str:
        """``instance:incarnation``, as the anchor and the records name the process."""
        return f"{self.instance}:{self.incarnation}"


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """All that a service may use of the outside. ``ready`` is set by the service when it works."""

    settings: Settings
    bus: Bus
    identity: Identity
    clock: Clock
    log: structlog.stdlib.BoundLogger
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
