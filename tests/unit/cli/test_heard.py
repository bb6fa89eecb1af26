"""What `status` calls ready: what is heard of now, on the server's own clock."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from anchorwatch.bus.port import Stored
from anchorwatch.cli.heard import Heard, judge, look
from anchorwatch.cli.running import said, status_text
from anchorwatch.service.context import Identity
from anchorwatch.service.presence import Presence
from anchorwatch.testing.bus import SimBus, SimServer, run
from anchorwatch.topology.streams import BUCKETS, STREAMS

LEASE_S = 6.0


def row(service: str = "planner", *, ready: bool = True, pid: int | None = None) -> dict[str, Any]:
    return {"service": service, "instance": f"{service}-1", "ready": ready, "pid": pid or os.getpid()}


def shown(process: dict[str, Any], heard: Heard | None) -> str:
    """The state that a person is told."""
    return said({**process, "announced": process["ready"], **judge(process, heard)})


async def a_planner() -> tuple[SimBus, SimBus, Presence]:
    """One that is present, by its bus; and the bus of whoever looks."""
    server = SimServer()
    for stream in STREAMS:
        server.ensure_stream(stream)
    for bucket in BUCKETS:
        server.ensure_bucket(bucket)
    bus, mine = server.connect(name="a"), server.connect(name="status")
    identity = Identity("planner", "planner-1", "a")
    presence = Presence(bus, identity, LEASE_S, monotonic=asyncio.get_running_loop().time)
    await presence.start()
    return bus, mine, presence


def test_process_without_a_heartbeat_is_not_ready() -> None:
    async def main() -> None:
        bus, mine, _ = await a_planner()
        await asyncio.sleep(10 * LEASE_S)
        assert shown(row(), await look(mine, [row()])) == "ready"
        bus.kill()
        await asyncio.sleep(LEASE_S / 2)
        assert shown(row(), await look(mine, [row()])) == "ready"
        await asyncio.sleep(LEASE_S)
        silent = await look(mine, [row()])
        assert shown(row(), silent).startswith("no heartbeat since 2")
        assert judge(row(), silent)["ready"] is False

    run(main(), 0)


def test_entry_of_another_process_does_not_count() -> None:
    async def main() -> None:
        _, mine, presence = await a_planner()
        other = row(pid=os.getpid() + 1)
        assert shown(other, await look(mine, [other])) == "no heartbeat"
        assert shown(row(ready=False), await look(mine, [row()])) == "starting"
        await presence.stop()
        assert shown(row(), await look(mine, [row()])) == "no heartbeat"

    run(main(), 0)


def test_process_is_not_ready_while_the_server_does_not_answer() -> None:
    assert shown(row(), None) == "no heartbeat"
    assert shown(row("nats"), None) == "no heartbeat"
    assert shown(row("nats"), Heard({}, 1)) == "ready"


def test_status_names_unknown_values() -> None:
    of: dict[str, Any] = {"api_url": "a", "nats_url": "n", "pid": 1, "processes": []}
    state = {**of, "ready": False, "bus": True, "dead_letters_open": None}
    assert "dead letters and held sessions are unknown" in status_text(state)
    assert "the NATS server does not answer" in status_text({**state, "bus": False})
    assert "not known" not in status_text({**state, "dead_letters_open": 0})


def test_unreadable_entry_is_not_a_heartbeat() -> None:
    for payload in (b"", b"[]", b'{"pid": 1}', b"\xff"):
        assert shown(row(), Heard({"planner-1": Stored("s", 1, 1, payload)}, 1)) == "no heartbeat"
