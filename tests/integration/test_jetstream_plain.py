"""The bus on nats-py as released, without the fast path."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from anchorwatch.bus import jetstream
from anchorwatch.bus.jetstream.client import FastClient
from anchorwatch.bus.port import Message
from anchorwatch.service.connect import connect
from anchorwatch.settings import load
from anchorwatch.topology.streams import StreamSpec

from tests.support.eventually import persist
from tests.support.nats_server import running_server

MESSAGES = 50


async def test_plain_client_carries_the_bus_across_a_restart(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        bus = await jetstream.connect(server.url, user=None, password=None, name="n", plain=True)
        try:
            await bus.ensure_stream(StreamSpec("S", ("s.>",)))
            await asyncio.gather(*(bus.publish(Message("s.1", b"%d" % n, f"m{n}")) for n in range(MESSAGES)))
            await asyncio.to_thread(server.restart)
            await persist(lambda: bus.publish(Message("s.1", b"last", "last")))
            page = await bus.range("S", "s.>", 1)
            assert {each.payload for each in page.messages} == {
                b"last",
                *(b"%d" % n for n in range(MESSAGES)),
            }
        finally:
            await bus.close()


@pytest.mark.parametrize("client", ["fast", "plain"])
async def test_setting_chooses_the_client(client: str, tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        bus = await connect(load(nats_url=server.url, nats_client=client), "n")
        assert isinstance(bus, jetstream.JetStreamBus)
        try:
            assert isinstance(bus._link._connection.client, FastClient) is (client == "fast")  # noqa: SLF001
        finally:
            await bus.close()
