"""Services in this process, run by their own ``run``: started, stopped in order, or cancelled at any line."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import structlog
from anchorwatch.bus.port import Bus
from anchorwatch.journal.commit import Committer
from anchorwatch.service.context import Identity, NoPeers, Peers, ServiceContext, WallClock
from anchorwatch.settings import Settings
from anchorwatch.topology.streams import journal_stream

Run = Callable[[ServiceContext], Awaitable[None]]
STOP_S_MAX = 30.0


def make_context(
    bus: Bus, service: str, instance: str | None = None, peers: Peers | None = None, **settings: Any
) -> ServiceContext:
    """A service's context, with a new incarnation."""
    incarnation = uuid.uuid4().hex
    return ServiceContext(
        settings=Settings(**settings),
        bus=bus,
        committer=Committer(bus, journal_stream()),
        identity=Identity(service, instance or f"{service}-1", incarnation),
        clock=WallClock(),
        log=structlog.stdlib.get_logger("test"),
        peers=peers or NoPeers(),
        random=Random(incarnation),
    )


@dataclass
class Running:
    """Running services."""

    tasks: list[tuple[asyncio.Future[None], ServiceContext]] = field(default_factory=list)

    async def start(self, run: Run, context: ServiceContext) -> ServiceContext:
        """Start it, and wait until it reports that it is ready."""
        task = asyncio.ensure_future(run(context))
        self.tasks.append((task, context))
        ready = asyncio.ensure_future(context.ready.wait())
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if task.done():
            task.result()
        return context

    async def kill(self, context: ServiceContext) -> None:
        """Cancel it at its present line; it sends nothing more."""
        for task, its in self.tasks:
            if its is context:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        self.tasks = [(task, its) for task, its in self.tasks if its is not context]

    async def stop(self) -> None:
        """Stop all of them in order."""
        for _, context in self.tasks:
            context.stopping.set()
        for task, _ in self.tasks:
            async with asyncio.timeout(STOP_S_MAX):
                await task
        self.tasks.clear()
