"""Every test that asks for ``world`` or ``bus`` runs twice: on ``sim`` and on ``nats``. No test is skipped on either."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from anchorwatch.bus.port import Bus

from tests.conformance.worlds import USERS, NatsWorld, SimWorld, World
from tests.support.nats_server import NatsServer, running_server

SERVER_PAYLOAD_BYTES_MAX = 1024 * 1024


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    directory = tmp_path_factory.mktemp("nats")
    with running_server(directory, USERS, max_payload_bytes=SERVER_PAYLOAD_BYTES_MAX) as server:
        yield server


@pytest.fixture(params=["sim", "nats"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    where: World = SimWorld() if request.param == "sim" else NatsWorld(request.getfixturevalue("nats_server"))
    yield where
    await where.close()


@pytest.fixture
async def bus(world: World) -> Bus:
    """A bus that may do everything."""
    return await world.connect()
