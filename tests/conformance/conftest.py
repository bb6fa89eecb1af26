"""Each test with the fixture ``world`` or ``bus`` runs on ``sim`` and on ``nats``; none is skipped on either.

On ``sim`` the event loop's time is virtual: waits cost nothing, and a test that would wait forever fails at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from anchorwatch.bus.port import Bus
from anchorwatch.testing.bus import VirtualTimeLoop

from tests.conformance.worlds import USERS, NatsWorld, SimWorld, World
from tests.support.nats_server import NatsServer, running_server

SERVER_PAYLOAD_BYTES_MAX = 1024 * 1024


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    directory = tmp_path_factory.mktemp("nats")
    with running_server(directory, USERS, max_payload_bytes=SERVER_PAYLOAD_BYTES_MAX) as server:
        yield server


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop decides between the two runs of a test; `world` follows it."""
    return {"sim": VirtualTimeLoop, "nats": asyncio.new_event_loop}


@pytest.fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    virtual = isinstance(asyncio.get_running_loop(), VirtualTimeLoop)
    where: World = SimWorld() if virtual else NatsWorld(request.getfixturevalue("nats_server"))
    yield where
    await where.close()


@pytest.fixture
async def bus(world: World) -> Bus:
    """A bus with all permissions."""
    return await world.connect()
