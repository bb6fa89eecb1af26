"""What a service is given: a service is one coroutine function ``run(context)``, found by its entry point.

``run`` returns when ``context.stopping`` is set and its work is put down; it may be killed at any moment instead.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from random import Random
from typing import Literal, Protocol

import structlog

from anchorwatch.bus.port import Bus
from anchorwatch.journal.commit import Committer
from anchorwatch.settings import Settings


class Clock(Protocol):
    """Time as data."""

    def now_ms(self) -> int:
        """Unix time, milliseconds."""
        ...

    def elapsed_s(self) -> float:
        """Seconds since some moment. No clock that is set changes it, so it is what a process waits by."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class WallClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def elapsed_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a process is.

    ``instance`` survives a restart; ``incarnation`` is new each time: a restarted instance knows that its former
    incarnations are dead.
    """

    service: str
    instance: str
    incarnation: str

    @property
    def execution_id(self) -> str:
        """``instance:incarnation``, as the anchor and the records name the process."""
        return f"{self.instance}:{self.incarnation}"


class Peers(Protocol):
    """What is known of the other processes of the same service."""

    async def alive(self, instance: str, incarnation: str) -> Literal["alive", "dead", "gone", "unknown"]:
        """Whether that process may still be at work; ``dead`` only where that is proved, ``gone`` where it is silent."""
        ...


class NoPeers:
    """Knows of nobody, and so proves nothing."""

    async def alive(self, instance: str, incarnation: str) -> Literal["alive", "dead", "gone", "unknown"]:  # noqa: ARG002
        return "unknown"


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """All that a service may use of the outside. ``ready`` is set by the service when it works.

    ``committer`` is the process's one writer to the journal: commits that queue up in it go together. ``random`` spreads
    retries; a simulation seeds it. ``crashes``: how many incarnations before this one, in a row, ended early without a word.
    """

    settings: Settings
    bus: Bus
    committer: Committer
    identity: Identity
    clock: Clock
    log: structlog.stdlib.BoundLogger
    peers: Peers = field(default_factory=NoPeers)
    random: Random = field(default_factory=Random)
    crashes: int = 0
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
