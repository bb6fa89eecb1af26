from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from anchorwatch.bus.jetstream import JetStreamBus, connect

from tests.integration.fleet.yards import YardProcess
from tests.support.nats_server import NatsServer, running_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with running_server(tmp_path / "nats") as started:
        yield started


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[JetStreamBus]:
    connected = await connect(server.url, user=None, password=None, name="test")
    yield connected
    await connected.close()


@pytest.fixture
async def yard(server: NatsServer, bus: JetStreamBus, tmp_path: Path) -> AsyncIterator[YardProcess]:
    started = YardProcess(server, tmp_path / "data", bus)
    await started.start()
    yield started
    started.kill9()
