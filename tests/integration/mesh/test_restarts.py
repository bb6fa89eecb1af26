"""A crashed process restarts under the same name; the NATS server restarts on the same port."""

import asyncio
import contextlib
import json
import os
import resource
import signal
import time
from pathlib import Path

import pytest
from anchorwatch.bus import jetstream
from anchorwatch.bus.port import Message
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.mesh import control
from anchorwatch.topology.streams import JOURNAL_SPEC, StreamSpec, journal_stream

from tests.integration.mesh.meshes import SmallMesh
from tests.support.waiting import eventually, is_running, until


def delays(mesh: SmallMesh, instance: str) -> list[float]:
    """The delay of each restart, by the supervisor's log."""
    entries = map(json.loads, (mesh.data.logs / "supervisor.log").read_text().splitlines())
    return [
        each["restart_in_s"]
        for each in entries
        if each["event"] == "process.ended" and each["instance"] == instance
    ]


def test_killed_service_restarts_at_once_under_its_name(mesh: SmallMesh) -> None:
    mesh.up()
    before = mesh.pid("executor")
    os.kill(before, signal.SIGKILL)
    after = until(lambda: next((pid for pid in mesh.mesh.pids["executor"] if pid != before), None))
    until(lambda: mesh.row("executor-1")["ready"])
    row = mesh.row("executor-1")
    assert (row["pid"], row["restarts"], row["last_exit"]) == (after, 1, -signal.SIGKILL)
    assert mesh.launcher is not None
    assert mesh.launcher.stdout is not None
    assert mesh.launcher.stdout.readline() == "executor-1 was killed by SIGKILL; it is restarted\n"
    # The start itself may be slow; the supervisor adds no delay.
    assert delays(mesh, "executor-1") == [0.0]


def test_killed_nats_server_restarts_on_its_port(mesh: SmallMesh) -> None:
    mesh.up()
    url, before = mesh.mesh.nats_url, mesh.pid("nats")
    os.kill(before, signal.SIGKILL)
    until(lambda: mesh.row("nats")["ready"] and mesh.row("nats")["pid"] != before)
    assert mesh.row("nats")["restarts"] == 1
    assert mesh.mesh.nats_url == url


def test_repeated_crashes_double_the_delay_of_the_restart(mesh: SmallMesh) -> None:
    mesh.up()
    took = []
    for _ in range(3):
        before = mesh.pid("planner")
        at = time.monotonic()
        os.kill(before, signal.SIGKILL)
        until(lambda: before not in mesh.mesh.pids["planner"] and mesh.mesh.pids["planner"])  # noqa: B023
        took.append(time.monotonic() - at)
    first, second, third = delays(mesh, "planner-1")
    assert first == 0.0
    # The spread shortens a wait by up to half.
    assert 0.1 <= second <= 0.2
    assert 0.2 <= third <= 0.4
    assert took[1] >= second
    assert took[2] >= third


def test_failed_write_of_mesh_json_is_retried(mesh: SmallMesh) -> None:
    mesh.up()
    before = mesh.pid("executor")
    # One write fails, as on a full disk.
    mesh.data.mesh.unlink()
    mesh.data.mesh.mkdir()
    os.kill(before, signal.SIGKILL)
    until(lambda: mesh.row("executor-1")["ready"] and mesh.row("executor-1")["pid"] != before)
    mesh.data.mesh.rmdir()
    until(mesh.data.mesh.exists)
    assert mesh.pid("executor") == mesh.row("executor-1")["pid"]


async def test_server_that_refuses_writes_restarts_once_space_is_free(mesh: SmallMesh) -> None:
    await asyncio.to_thread(mesh.up)
    url, before = mesh.mesh.nats_url, mesh.pid("nats")
    bus = await jetstream.connect(url, user="planner", password=mesh.secret("planner"), name="planner")
    try:
        await bus.ensure_stream(StreamSpec("S", ("s.>",)))
        await bus.publish(Message("s.1", b"kept", "m-1"))
        # The writes of the server fail, as on a full disk.
        resource.prlimit(before, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        with pytest.raises(AnchorWatchError):
            await bus.publish(Message("s.2", b"x" * 8192, "m-2"), timeout_s=1.0)
        with contextlib.suppress(ProcessLookupError):
            # The process may have been replaced already, by one without the limit.
            resource.prlimit(before, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

        async def is_written() -> bool:
            with contextlib.suppress(AnchorWatchError):
                return bool((await bus.publish(Message("s.2", b"x", "m-2"), timeout_s=1.0)).sequence)
            return False

        await eventually(is_written, 60.0)
        assert [each.payload for each in (await bus.range("S", "s.>", 1)).messages] == [b"kept", b"x"]
        assert mesh.pid("nats") != before
    finally:
        await bus.close()


def test_adopted_child_is_reaped(mesh: SmallMesh) -> None:
    """The supervisor adopts a worker whose yard is killed: it reaps it, and still notices the ends of other children."""
    mesh.order("yard.forks")
    mesh.up()
    orphan = until(lambda: int((mesh.root / "orphan").read_text()) if (mesh.root / "orphan").exists() else 0)
    os.kill(mesh.pid("yard"), signal.SIGKILL)
    until(lambda: mesh.row("yard-1")["restarts"] == 1 and mesh.row("yard-1")["ready"])
    assert is_running(orphan)
    os.kill(orphan, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{orphan}").exists())
    before = mesh.pid("planner")
    os.kill(before, signal.SIGKILL)
    until(lambda: mesh.row("planner-1")["ready"] and mesh.row("planner-1")["pid"] != before)


def test_orphan_is_killed_when_the_mesh_stops(mesh: SmallMesh) -> None:
    mesh.order("yard.forks")
    mesh.up()
    assert mesh.launcher is not None
    orphan = until(lambda: int((mesh.root / "orphan").read_text()) if (mesh.root / "orphan").exists() else 0)
    mesh.launcher.send_signal(signal.SIGTERM)
    assert mesh.launcher.wait(60) == 0
    assert not is_running(orphan)


async def test_removed_data_of_the_journal_is_kept_and_reported(mesh: SmallMesh) -> None:
    await asyncio.to_thread(mesh.up)
    bus = await jetstream.connect(
        mesh.mesh.nats_url, user="planner", password=mesh.secret("planner"), name="planner"
    )
    await bus.ensure_stream(JOURNAL_SPEC)
    for n in range(3):
        await bus.publish(Message("aw.journal.0.default.s.art.x", f"record {n}".encode()))
    await bus.close()
    control.ask(mesh.data, {"verb": "stop"})
    await asyncio.to_thread(mesh.end)
    [block] = mesh.data.nats_store.rglob(f"streams/{journal_stream()}/msgs/1.blk")
    # As after a kill: without an index, the server reads every record.
    block.with_name("index.db").unlink(missing_ok=True)
    damaged = block.read_bytes().replace(b"record 1", b"record !")
    block.write_bytes(damaged)
    await asyncio.to_thread(mesh.up)
    [copy] = mesh.data.nats_aside.rglob("1.blk")
    assert copy.read_bytes() == damaged
    left = block.read_bytes()
    assert b"record 0" in left
    assert b"record !" not in left
    assert b"record 2" not in left
    assert "store.data_removed" in (mesh.data.logs / "supervisor.log").read_text()
