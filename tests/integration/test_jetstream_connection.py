"""The connection after cancelled waits and faults of its reader."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.bus import jetstream
from anchorwatch.core.errors import Unavailable
from nats.aio.client import Client

from tests.support.eventually import eventually
from tests.support.nats_server import running_server

AT_ONCE_S = 20.0


async def test_bus_closes_although_reconnecting_loses_a_cancellation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lose one cancellation, as ``asyncio.wait_for`` may do before Python 3.12."""
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


async def test_cancelled_subscribe_affects_no_other_subscription(tmp_path: Path) -> None:
    """Cancel a subscribe, as a client of live events does that disconnects early."""
    report: list[str] = []

    async def hear(_subject: str, _payload: bytes) -> None:
        return None

    with running_server(tmp_path) as server:
        bus = await jetstream.connect(
            server.url, user=None, password=None, name="listening", on_error=report.append
        )
        reading = bus._link._connection.client._reading_task  # noqa: SLF001
        assert reading is not None
        # At least one of them has sent its request and has no answer.
        for rounds in range(8):
            listening = asyncio.create_task(bus.subscribe(f"live.{rounds}", hear))
            for _ in range(rounds):
                await asyncio.sleep(0)
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError, Unavailable):
                await listening
        await bus.subscribe("live.last", hear)
        assert not reading.done()
        assert bus.connected
        await bus.close()
    assert report == []


async def test_connection_without_a_reader_is_replaced_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report: list[str] = []
    faults: list[int] = []
    heard = Client._process_pong  # noqa: SLF001

    async def fail_once(client: Client) -> None:
        if not faults:
            faults.append(1)
            raise ZeroDivisionError("a fault of reading")
        await heard(client)

    async def hear(_subject: str, _payload: bytes) -> None:
        return None

    # No missing pong may reveal the fault.
    monkeypatch.setattr("anchorwatch.bus.jetstream.connection.PING_INTERVAL_S", 600)
    with running_server(tmp_path) as server:
        bus = await jetstream.connect(
            server.url, user=None, password=None, name="listening", on_error=report.append
        )
        monkeypatch.setattr(Client, "_process_pong", fail_once)
        with contextlib.suppress(Unavailable):
            await bus.subscribe("live", hear)
        await eventually(lambda: any("reconnected" in text for text in report))
        await bus.subscribe("live", hear)
        await bus.close()
    assert faults


async def test_client_reconnects_after_an_unreadable_greeting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[int] = []
    greeted = Client._process_info  # noqa: SLF001

    async def misunderstand_once(client: Client, *report: Any, **more: Any) -> None:
        if not faults:
            faults.append(1)
            raise ValueError("not enough values to unpack")
        await greeted(client, *report, **more)

    with running_server(tmp_path) as server:
        bus = await jetstream.connect(server.url, user=None, password=None, name="n")
        monkeypatch.setattr(Client, "_process_info", misunderstand_once)
        await asyncio.to_thread(server.restart)
        await eventually(lambda: faults and bus.connected)
        await bus.close()


async def test_subscribe_in_flight_fails_with_the_connection(
    tmp_path: Path,
) -> None:
    async def hear(_subject: str, _payload: bytes) -> None:
        return None

    with running_server(tmp_path) as server:
        bus = await jetstream.connect(server.url, user=None, password=None, name="listening")
        assert server.process is not None
        server.pause()
        listening = asyncio.create_task(bus.subscribe("live", hear))
        pongs = bus._link._connection.client._pongs  # noqa: SLF001
        await eventually(lambda: pongs)
        # Killed while paused: it sends no answer first.
        server.process.kill()
        # nats-py waits ten seconds for each of two answers.
        with pytest.raises(Unavailable):
            async with asyncio.timeout(8.0):
                await listening
        await bus.close()
