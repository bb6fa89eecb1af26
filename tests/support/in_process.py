"""Services in this process on a real server, each with its own connection, started and ended by the test."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from anchorwatch.bus import jetstream
from anchorwatch.bus.port import Bus
from anchorwatch.journal.commit import Committer
from anchorwatch.service.context import Identity, ServiceContext, WallClock
from anchorwatch.service.runner import find
from anchorwatch.settings import Settings
from anchorwatch.topology.streams import journal_stream

READY_S_MAX = 60.0


@dataclass
class Running:
    """A running service."""

    name: str
    context: ServiceContext
    bus: Bus
    task: asyncio.Task[None]

    async def stop(self) -> None:
        """End it as SIGTERM does."""
        self.context.stopping.set()
        await self.task
        await self.bus.close()

    async def kill(self) -> None:
        """Cancel it at its present line."""
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
        await self.bus.close()


@dataclass
class Services:
    """Starts services against ``url``, with their data below ``directory``."""

    url: str
    directory: Path
    running: dict[str, Running] = field(default_factory=dict)

    async def start(self, service: str, instance: str | None = None, **settings: Any) -> Running:
        """Start it, and wait until it is ready."""
        instance = instance or f"{service}-1"
        bus = await jetstream.connect(self.url, user=None, password=None, name=instance)
        context = ServiceContext(
            settings=Settings(data_dir=self.directory, **settings),
            bus=bus,
            committer=Committer(bus, journal_stream()),
            identity=Identity(service, instance, uuid.uuid4().hex),
            clock=WallClock(),
            log=structlog.stdlib.get_logger("test"),
        )
        task = asyncio.ensure_future(find(service)(context))
        ready = asyncio.create_task(context.ready.wait())
        async with asyncio.timeout(READY_S_MAX):
            await asyncio.wait({ready, task}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if task.done():
            await bus.close()
            task.result()
        started = Running(instance, context, bus, task)
        self.running[instance] = started
        return started

    async def stop(self, instance: str) -> None:
        await self.running.pop(instance).stop()

    async def kill(self, instance: str) -> None:
        await self.running.pop(instance).kill()

    async def close(self) -> None:
        for instance in reversed(list(self.running)):
            await self.stop(instance)


@contextlib.asynccontextmanager
async def services_on(url: str, directory: Path) -> AsyncIterator[Services]:
    """Services for the length of a ``with`` block."""
    made = Services(url, directory)
    try:
        yield made
    finally:
        await made.close()
