"""That a write is on the disk before it is acknowledged: by the word of the servers, not of the file that we wrote for them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.bus import jetstream
from anchorwatch.cli.doctor_bus import ask_servers, judge
from anchorwatch.core.errors import Unavailable
from anchorwatch.mesh.credentials import SYSTEM
from anchorwatch.testing.crash_test.mesh import CrashMesh

from tests.support.nats_server import NatsServer, free_ports
from tests.support.waiting import eventually

ACCOUNTS = """
accounts { MESH: { jetstream: enabled, users: [{user: mesh, password: x}] }, SYSTEM: { users: [{user: system, password: x}] } }
system_account: SYSTEM
"""
ELECTION_S_MAX = 30.0


def servers_of(directory: Path, syncing: Sequence[bool]) -> list[NatsServer]:
    """One server, or a cluster, each with its own way to sync."""
    size = len(syncing)
    if size == 1:
        return [NatsServer(directory, sync_always=syncing[0], more=ACCOUNTS)]
    ports = free_ports(2 * size)
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports[size:])
    return [
        NatsServer(
            directory / f"n{n}",
            name=f"n{n}",
            port=ports[n],
            sync_always=sync,
            more=ACCOUNTS,
            cluster=f'cluster {{ name: test, listen: "127.0.0.1:{ports[size + n]}", routes: [{routes}] }}',
        )
        for n, sync in enumerate(syncing)
    ]


@pytest.mark.parametrize(
    ("syncing", "state", "said"),
    [
        ([True], "passed", "one server"),
        ([False], "failed", "no: server test syncs to disk every 120 s"),
        ([True, True, True], "passed", "3 servers, 3 copies"),
        ([True, True, False], "failed", "no: server n2 syncs to disk every 120 s"),
    ],
)
async def test_doctor_reads_the_sync_mode_of_each_server(
    tmp_path: Path, syncing: list[bool], state: str, said: str
) -> None:
    servers = servers_of(tmp_path, syncing)
    try:
        for server in servers:
            server.launch()
        for server in servers:
            await asyncio.to_thread(server.wait_ready)
        bus = await jetstream.connect(servers[0].url, user="system", password="x", name="doctor")

        async def all_answer() -> list[dict[str, Any]] | None:
            try:
                answers = await ask_servers(bus)
            except Unavailable:
                return None
            return answers if len(answers) == len(syncing) else None

        answers = await eventually(all_answer, ELECTION_S_MAX)
        await bus.close()
    finally:
        for server in servers:
            server.kill9()
    assert answers is not None
    report = {each["server"]["name"]: bool(each["data"]["config"].get("sync_always")) for each in answers}
    assert report == {server.name: server.sync_always for server in servers}
    check = judge(answers, replicas=3)
    assert check.state == state
    assert said in check.detail


async def test_embedded_server_reports_that_it_syncs_each_write(tmp_path: Path) -> None:
    mesh = CrashMesh(tmp_path, counts={})
    try:
        await mesh.open()
        async with mesh.bus(SYSTEM) as bus:
            answers = await ask_servers(bus)
    finally:
        mesh.close()
    assert [each["data"]["config"]["sync_always"] for each in answers] == [True]
    assert judge(answers, replicas=1).state == "passed"
