"""A real NATS server with the mesh's streams and buckets, for each test that asks for ``bus``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from anchorwatch.bus import jetstream
from anchorwatch.bus.port import Bus
from anchorwatch.service.provisioning import ensure_topology

from tests.support.nats_server import NatsServer, running_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server of the test's own, so that no durable consumer is left from another."""
    with running_server(tmp_path / "nats", sync_always=False) as running:
        yield running


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[Bus]:
    """A bus with every stream and bucket."""
    connected = await jetstream.connect(server.url, user=None, password=None, name="test")
    await ensure_topology(connected)
    yield connected
    await connected.close()
