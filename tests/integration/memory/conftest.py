"""A memory on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from anchorwatch.bus.port import Bus

from tests.support.in_process import Services, services_on
from tests.support.nats_server import NatsServer


@pytest.fixture
async def services(server: NatsServer, bus: Bus, tmp_path: Path) -> AsyncIterator[Services]:
    del bus  # its streams must be there first
    async with services_on(server.url, tmp_path / "data") as made:
        yield made
