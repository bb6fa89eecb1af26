"""The context of a service, and the identity of its process.

A service is one coroutine function ``run(context)``, found by its entry point. It finishes its work and returns once
``context.stopping`` is set; it may be killed at any moment.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
import uuid
from dataclasses import dataclass, field
from random import Random
from typing import Literal, Protocol

import structlog

from anchorwatch.bus.port import Bus
from anchorwatch.core.names import check_token
from anchorwatch.journal.commit import Committer
from anchorwatch.settings import Settings

INSTANCE_CHARS_MAX = 63
_NOT_IN_A_TOKEN = re.compile(r"[^A-Za-z0-9_-]+")


class Clock(Protocol):
    """The time of a process, which a simulation replaces."""

    def now_ms(self) -> int:
        """Unix time, milliseconds."""
        ...

    def elapsed_s(self) -> float:
        """Monotonic seconds since an arbitrary moment; use it for waits."""
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
    """The identity of a process.

    ``instance`` survives a restart; ``incarnation`` is new at each start. A restarted instance knows that its former
    incarnations are dead.
    """

    service: str
    instance: str
    incarnation: str

    @property
    def execution_id(self) -> str:
        """``instance:incarnation``: the name of the process in the anchor and the records."""
        return f"{self.instance}:{self.incarnation}"


def identify(service: str, instance: str | None) -> Identity:
    """The identity of this process. The default of ``instance`` is made of the service and the host, so a restart keeps it.

    Raises:
        BadInput: ``instance`` is not valid in a subject.
    """
    default = f"{service}-{_NOT_IN_A_TOKEN.sub('-', socket.gethostname())}"[:INSTANCE_CHARS_MAX].rstrip("-")
    name = check_token(instance, "instance") if instance else default
    return Identity(service=service, instance=name, incarnation=uuid.uuid4().hex)


class Peers(Protocol):
    """The liveness of the other processes of the same service."""

    async def alive(self, instance: str, incarnation: str) -> Literal["alive", "dead", "gone", "unknown"]:
        """Whether that process may still be working: ``dead`` if its end is proved, ``gone`` if it is silent."""
        ...


class NoPeers:
    """Knows no peers, so each answer is ``unknown``."""

    async def alive(self, instance: str, incarnation: str) -> Literal["alive", "dead", "gone", "unknown"]:  # noqa: ARG002
        return "unknown"


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """Every external dependency of a service. The service sets ``ready`` once it works.

    ``committer`` is the only journal writer of the process, and writes queued commits together. ``random`` spreads retries; a
    simulation seeds it. ``crashes`` counts the consecutive earlier incarnations that ended early and did not record their end.
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
