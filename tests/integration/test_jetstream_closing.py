"""The end of a connection that is about to come back."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from anchorwatch.bus import jetstream
from nats.aio.client import Client

from tests.support.eventually import eventually
from tests.support.nats_server import running_server

AT_ONCE_S = 20.0


async def test_a_bus_can_be_closed_although_its_reconnecting_forgets_that_it_was_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``asyncio.wait_for`` does before Python 3.12, where what it waits for ends in the same moment."""
    forgotten: list[int] = []

    async def forgetful(_client: Client) -> None:
        while len(forgotten) < 4:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            forgotten.append(len(forgotten))

    monkeypatch.setattr(Client, "_attempt_reconnect", forgetful)
    with running_server(tmp_path) as server:
        bus = await jetstream.connect(server.url, user=None, password=None, name="closing")
        server.kill9()
        await eventually(lambda: not bus.connected)
        async with asyncio.timeout(AT_ONCE_S):
            await bus.close()
    assert len(forgotten) == 4
