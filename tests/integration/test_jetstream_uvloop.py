"""The bus on uvloop, which reports a closed connection differently from asyncio."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import uvloop
from anchorwatch.bus import jetstream
from anchorwatch.bus.port import Message
from anchorwatch.core.errors import Unavailable
from anchorwatch.topology.streams import StreamSpec
from nats.aio.client import Client

from tests.support.eventually import persist
from tests.support.nats_server import NatsServer, running_server


def test_write_to_a_lost_connection_is_unavailable(tmp_path: Path) -> None:
    async def body(url: str) -> None:
        bus = await jetstream.connect(url, user=None, password=None, name="n")
        try:
            await bus.ensure_stream(StreamSpec("S", ("s.>",)))
            client = bus._link._connection.client  # noqa: SLF001
            # nats-py's flusher ends at a closed socket; then each publish writes by itself.
            client._flusher_task.cancel()  # type: ignore[union-attr]  # noqa: SLF001
            await asyncio.sleep(0)
            # The reader notices in a later round of the loop; this is still the same one.
            client._transport._io_writer.transport.abort()  # type: ignore[union-attr]  # noqa: SLF001
            with pytest.raises(Unavailable):
                await bus.publish(Message("s.1", b"x", "m"))
            await persist(lambda: bus.publish(Message("s.1", b"x", "m")), 10.0)
        finally:
            await bus.close()

    with running_server(tmp_path) as server:
        uvloop.run(body(server.url))


def test_client_reconnects_after_a_second_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[Client] = []
    report = Client._process_info  # noqa: SLF001

    async def lose_it_once(client: Client, *told_of: Any, **more: Any) -> None:
        await report(client, *told_of, **more)
        if not lost:
            lost.append(client)
            client._transport._io_writer.transport.abort()  # type: ignore[union-attr]  # noqa: SLF001
            await asyncio.sleep(0)

    async def body(server: NatsServer) -> None:
        bus = await jetstream.connect(server.url, user=None, password=None, name="n")
        try:
            await bus.ensure_stream(StreamSpec("S", ("s.>",)))
            monkeypatch.setattr(Client, "_process_info", lose_it_once)
            await asyncio.to_thread(server.restart)
            await persist(lambda: bus.publish(Message("s.1", b"x", "m")))
        finally:
            await bus.close()
        assert lost

    with running_server(tmp_path) as server:
        uvloop.run(body(server))


def test_send_during_a_loss_raises_nothing_later(tmp_path: Path) -> None:
    async def body(url: str) -> None:
        bus = await jetstream.connect(url, user=None, password=None, name="n")
        faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        try:
            client = bus._link._connection.client  # noqa: SLF001
            # The closed socket stays unnoticed, as it may for a moment in production.
            client._reading_task.cancel()  # type: ignore[union-attr]  # noqa: SLF001
            client._transport._io_writer.transport.abort()  # type: ignore[union-attr]  # noqa: SLF001
            await asyncio.sleep(0.01)
            assert client.is_connected
            await bus.announce("s.1", b"x")
            await asyncio.sleep(0.01)
        finally:
            await bus.close()
        assert faults == []

    with running_server(tmp_path) as server:
        uvloop.run(body(server.url))
