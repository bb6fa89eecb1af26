"""An observer in this process, and a pack whose facts a test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from anchorwatch.bus.port import Bus
from anchorwatch.core.names import SessionRef
from anchorwatch.packs import registry
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import ServiceContext
from anchorwatch_observer.main import run

from tests.support.packs import BENCH, Sink, bench_agent
from tests.support.services import Running, make_context


@pytest.fixture(autouse=True)
def bench() -> Iterator[None]:
    """The bench is a pack like any other."""
    registry.register(BENCH)
    yield
    registry._known.pop(BENCH.name)  # noqa: SLF001 - no other test may find it


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path / "world")


@pytest.fixture
async def agents(bus: Bus) -> AgentDirectory:
    return await AgentDirectory.open(bus)


@pytest.fixture
async def fleet(agents: AgentDirectory, sink: Sink, tmp_path: Path) -> SessionRef:
    """A session whose agent wants everything of `bench` and of `fleet`."""
    del sink
    ref = SessionRef("default", "fleet")
    await agents.apply("default", bench_agent(tmp_path / "world", subscriptions=("bench.>", "fleet.>")))
    await agents.bind(ref, "keeper")
    return ref


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    services = Running()
    yield services
    await services.stop()


@pytest.fixture
async def observer(bus: Bus, running: Running) -> ServiceContext:
    return await running.start(run, make_context(bus, "observer", probe_interval_s=0.05))
