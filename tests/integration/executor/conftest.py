"""Executors in this process, a scripted session, and a provider that counts its calls."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
import structlog
from anchorwatch.bus.port import Bus
from anchorwatch.executor import PoolRunner
from anchorwatch.journal.commit import Committer
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import Identity, ServiceContext, WallClock
from anchorwatch.service.runtimes import PackRuntimes
from anchorwatch.settings import Settings
from anchorwatch.topology.streams import journal_stream

from tests.support.packs import Sink, bench_agent, load
from tests.support.sessions import ScriptedSession

WS = "default"


class KnownPeers:
    """Knows exactly who is dead, and who is only silent."""

    def __init__(self) -> None:
        self.dead: set[str] = set()
        self.gone: set[str] = set()
        self.names: dict[str, str] = {}

    async def alive(self, instance: str, incarnation: str) -> Literal["alive", "dead", "gone", "unknown"]:
        if self.names.get(instance, incarnation) != incarnation:
            # Another process has the name by now.
            return "dead"
        if instance in self.gone:
            return "gone"
        return "dead" if instance in self.dead else "alive"


@dataclass
class Executors:
    """Starts and kills executors. A killed one is cancelled where it stands, and says nothing more."""

    bus: Bus
    peers: KnownPeers = field(default_factory=KnownPeers)
    running: dict[str, tuple[asyncio.Task[None], ServiceContext]] = field(default_factory=dict)

    async def start(self, instance: str = "executor-1", pool: str = "default") -> Identity:
        identity = Identity("executor", instance, uuid.uuid4().hex)
        self.peers.names[instance] = identity.incarnation
        context = ServiceContext(
            settings=Settings(),
            bus=self.bus,
            committer=Committer(self.bus, journal_stream()),
            identity=identity,
            clock=WallClock(),
            log=structlog.stdlib.get_logger("test"),
            peers=self.peers,
        )
        agents = await AgentDirectory.open(context.bus, load)
        runtimes = PackRuntimes(context.bus, load)
        runner = PoolRunner(context, pool, agents, runtimes.get, concurrency=8, load_pack=load)
        task = asyncio.create_task(runner.run(), name=instance)
        self.running[instance] = (task, context)
        await context.ready.wait()
        return identity

    async def kill(self, instance: str = "executor-1") -> None:
        task, _ = self.running.pop(instance)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def stop(self) -> None:
        for task, context in self.running.values():
            context.stopping.set()
            await task


@pytest.fixture
async def executors(bus: Bus) -> AsyncIterator[Executors]:
    made = Executors(bus)
    yield made
    await made.stop()


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path / "world")


@pytest.fixture
async def session(bus: Bus, tmp_path: Path) -> ScriptedSession:
    """A session with a turn that runs. Its sink honours effect keys."""
    return await scripted(bus, tmp_path / "world")


async def scripted(bus: Bus, world: Path, **config: object) -> ScriptedSession:
    agents = await AgentDirectory.open(bus, load)
    await agents.apply(WS, bench_agent(world, config=config))
    made = ScriptedSession(bus)
    await made.create()
    await made.acquire()
    return made
