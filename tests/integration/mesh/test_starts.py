"""The start of a mesh: one for each data directory; ``mesh.json``; a restart keeps addresses and credentials."""

import json
import os
import signal
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from anchorwatch.cli import running
from anchorwatch.mesh import control
from anchorwatch.mesh.lock import lock_holder
from anchorwatch.mesh.process import children_of

from tests.integration.mesh.meshes import SmallMesh, all_gone
from tests.support.waiting import is_running, until


def test_mesh_json_is_private_and_complete(mesh: SmallMesh) -> None:
    assert mesh.run("--detach").returncode == 0
    value = json.loads(mesh.data.mesh.read_text())
    assert stat.S_IMODE(mesh.data.mesh.stat().st_mode) == 0o600
    assert set(value) >= {"nats_url", "publisher_user", "publisher_password", "api_url", "token", "pids"}
    assert set(value["pids"]) == {
        "nats", "observer", "planner", "executor", "memory", "notifier", "gateway", "yard"}  # fmt: skip
    assert all(is_running(pid) for pid in mesh.pids)
    for private in (mesh.data.credentials, mesh.data.nats_config, mesh.data.control):
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(mesh.root.stat().st_mode) == 0o700


def test_second_start_reports_the_running_mesh(mesh: SmallMesh) -> None:
    assert mesh.run("--detach").returncode == 0
    pids = mesh.pids
    second = mesh.run("--detach")
    assert second.returncode == 5
    assert second.stderr.count("\n") == 1
    assert f"already running on {mesh.root} at {mesh.mesh.api_url} (pid {mesh.mesh.pid})" in second.stderr
    assert mesh.pids == pids


def test_restart_keeps_addresses_and_credentials(mesh: SmallMesh) -> None:
    assert mesh.run("--detach", "executor=2").returncode == 0
    first, pids = mesh.mesh, mesh.pids
    assert running.stop(mesh.data) == first.pid
    all_gone(pids)
    assert not mesh.data.mesh.exists()
    assert mesh.run("--detach").returncode == 0
    second = mesh.mesh
    assert (second.nats_url, second.api_url, second.token) == (first.nats_url, first.api_url, first.token)
    assert second.publisher_password == first.publisher_password
    assert len(second.pids["executor"]) == 2


def variables(mesh: SmallMesh, service: str) -> dict[str, str]:
    """The environment of a process of the mesh."""
    entries = Path(f"/proc/{mesh.pid(service)}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def test_restart_from_another_shell_keeps_the_model(mesh: SmallMesh) -> None:
    mesh.environment = {
        "ANCHORWATCH_MODEL": "openai",
        "ANCHORWATCH_MODEL_NAME": "m-1",
        "ANCHORWATCH_MODEL_KEY": "s3cret",
    }
    assert mesh.run("--detach").returncode == 0
    running.stop(mesh.data)
    mesh.environment = {"ANCHORWATCH_MODEL_NAME": "m-2", "ANCHORWATCH_MODEL_NAM": "m-3"}
    second = mesh.run("--detach")
    assert second.returncode == 0, second.stderr
    planner, executor = variables(mesh, "planner"), variables(mesh, "executor")
    assert (planner["ANCHORWATCH_MODEL"], planner["ANCHORWATCH_MODEL_NAME"]) == ("openai", "m-2")
    assert planner["ANCHORWATCH_MODEL_KEY"] == "s3cret"
    assert "ANCHORWATCH_MODEL_KEY" not in executor
    assert "ANCHORWATCH_MODEL_NAM is set, but is not a setting; did you mean " in second.stdout
    assert (
        "settings of the last start: ANCHORWATCH_MODEL=openai, ANCHORWATCH_MODEL_KEY=********"
        in second.stdout
    )
    assert "changed setting: ANCHORWATCH_MODEL_NAME: m-1 -> m-2" in second.stdout
    assert "  model    m-2 at " in second.stdout


def test_settings_of_a_failed_start_are_not_kept(mesh: SmallMesh) -> None:
    assert mesh.run("--detach").returncode == 0
    running.stop(mesh.data)
    mesh.order("memory.refuse")
    mesh.environment = {"ANCHORWATCH_LOG_LEVEL": "debug"}
    assert mesh.run("--detach").returncode == 2
    assert "LOG_LEVEL" not in mesh.data.settings.read_text()


def test_service_that_does_not_start_ends_the_start(mesh: SmallMesh) -> None:
    mesh.order("memory.refuse")
    done = mesh.run("--detach")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "memory-1 does not start: memory: no valid settings" in done.stderr
    assert lock_holder(mesh.data) is None


def test_taken_port_is_named_with_its_flag(mesh: SmallMesh) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = mesh.run("--detach", f"--port={port}")
    assert done.returncode == 5
    assert f"port {port} for the gateway is taken (choose another with --port" in done.stderr
    assert not mesh.root.exists(), "a failed first start leaves no directory"


def test_mesh_starts_in_a_deep_data_directory(tmp_path: Path) -> None:
    mesh = SmallMesh(tmp_path / ("d" * 100) / "data")
    try:
        assert mesh.run("--detach").returncode == 0
        assert control.ask(mesh.data, {"verb": "status"})["ready"]
        running.stop(mesh.data)
    finally:
        mesh.end()


def test_scale_starts_the_next_numbers_and_stops_the_newest(mesh: SmallMesh) -> None:
    assert mesh.run("--detach").returncode == 0
    first = mesh.pid("executor")
    control.ask(mesh.data, {"verb": "scale", "service": "executor", "count": 3})
    assert mesh.row("executor-3")["pid"] in mesh.mesh.pids["executor"]
    control.ask(mesh.data, {"verb": "scale", "service": "executor", "count": 1})
    assert mesh.mesh.pids["executor"] == [first]


def test_scaling_down_reports_no_restart(mesh: SmallMesh) -> None:
    mesh.up("planner=2")
    control.ask(mesh.data, {"verb": "scale", "service": "planner", "count": 1})
    os.kill(mesh.pid("executor"), signal.SIGKILL)
    assert mesh.launcher is not None
    assert mesh.launcher.stdout is not None
    assert mesh.launcher.stdout.readline() == "executor-1 was killed by SIGKILL; it is restarted\n"


def test_start_does_not_wait_for_a_removed_instance(mesh: SmallMesh) -> None:
    mesh.order("executor-2.unready")
    with ThreadPoolExecutor() as threads:
        start = threads.submit(mesh.run, "--detach", "executor=2")
        log = mesh.data.log("executor-2")
        until(lambda: log.exists() and "started" in log.read_text(), 30, "executor-2 started")
        scale(mesh, 1)
        assert start.result().returncode == 0
    assert len(mesh.mesh.pids["executor"]) == 1


def test_name_of_a_stopping_instance_is_not_reused(mesh: SmallMesh) -> None:
    mesh.environment["SMALL_MESH_STOP_S"] = "1"
    mesh.order("executor.stubborn")
    assert mesh.run("--detach", "executor=3").returncode == 0
    with ThreadPoolExecutor() as threads:
        down = threads.submit(scale, mesh, 1)
        until(lambda: "executor-3" not in executors(mesh), what="executor-3 is being ended")
        scale(mesh, 3)
        down.result()
    assert executors(mesh) == ["executor-1", "executor-2", "executor-3"]
    assert json.loads(mesh.data.remembered.read_text())["counts"]["executor"] == 3
    # The supervisor has no child that the mesh does not list.
    supervisor = mesh.mesh.pid
    assert sorted(children_of(supervisor)) == sorted(pid for pid in mesh.pids if pid != supervisor)


def scale(mesh: SmallMesh, count: int) -> None:
    control.ask(mesh.data, {"verb": "scale", "service": "executor", "count": count})


def executors(mesh: SmallMesh) -> list[str]:
    rows = control.ask(mesh.data, {"verb": "status"})["processes"]
    return [row["instance"] for row in rows if row["service"] == "executor"]
