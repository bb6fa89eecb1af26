"""Starting: once for each data directory, with what a program needs in ``mesh.json``, and the same again after a restart."""

import json
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from anchorwatch.cli import running
from anchorwatch.mesh import control
from anchorwatch.mesh.lock import held_by
from anchorwatch.mesh.process import children_of

from tests.integration.mesh.meshes import SmallMesh, all_gone
from tests.support.waiting import is_running, until


def test_mesh_json_holds_what_a_program_needs_and_only_its_owner_reads_it(mesh: SmallMesh) -> None:
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


def test_a_second_start_says_that_it_is_running_and_where(mesh: SmallMesh) -> None:
    assert mesh.run("--detach").returncode == 0
    pids = mesh.pids
    second = mesh.run("--detach")
    assert second.returncode == 5
    assert second.stderr.count("\n") == 1
    assert f"already running on {mesh.root} at {mesh.mesh.api_url} (pid {mesh.mesh.pid})" in second.stderr
    assert mesh.pids == pids


def test_down_ends_it_and_a_new_start_keeps_addresses_and_credentials(mesh: SmallMesh) -> None:
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


def test_a_service_that_refuses_to_start_ends_the_start_with_its_own_words(mesh: SmallMesh) -> None:
    mesh.order("memory.refuse")
    done = mesh.run("--detach")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "memory-1 does not start: memory: it will not start" in done.stderr
    assert held_by(mesh.data) is None


def test_a_taken_port_that_was_asked_for_is_named_with_its_flag(mesh: SmallMesh) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = mesh.run("--detach", f"--port={port}")
    assert done.returncode == 5
    assert f"port {port} for the gateway is taken (choose another with --port" in done.stderr


def test_a_deep_data_directory_works_although_its_socket_path_would_be_too_long(tmp_path: Path) -> None:
    mesh = SmallMesh(tmp_path / ("d" * 100) / "data")
    try:
        assert mesh.run("--detach").returncode == 0
        assert control.ask(mesh.data, {"verb": "status"})["ready"]
        running.stop(mesh.data)
    finally:
        mesh.end()


def test_scale_starts_the_next_numbers_and_ends_the_newest(mesh: SmallMesh) -> None:
    assert mesh.run("--detach").returncode == 0
    first = mesh.pid("executor")
    control.ask(mesh.data, {"verb": "scale", "service": "executor", "count": 3})
    assert mesh.row("executor-3")["pid"] in mesh.mesh.pids["executor"]
    control.ask(mesh.data, {"verb": "scale", "service": "executor", "count": 1})
    assert mesh.mesh.pids["executor"] == [first]


def test_what_is_scaled_away_while_the_mesh_starts_is_waited_for_no_more(mesh: SmallMesh) -> None:
    mesh.order("executor-2.unready")
    with ThreadPoolExecutor() as threads:
        start = threads.submit(mesh.run, "--detach", "executor=2")
        log = mesh.data.log("executor-2")
        until(lambda: log.exists() and "started" in log.read_text(), 30, "executor-2 started")
        scale(mesh, 1)
        assert start.result().returncode == 0
    assert len(mesh.mesh.pids["executor"]) == 1


def test_a_name_that_is_being_given_up_is_not_given_away(mesh: SmallMesh) -> None:
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
    # Nobody is left behind whom the mesh does not know any more.
    supervisor = mesh.mesh.pid
    assert sorted(children_of(supervisor)) == sorted(pid for pid in mesh.pids if pid != supervisor)


def scale(mesh: SmallMesh, count: int) -> None:
    control.ask(mesh.data, {"verb": "scale", "service": "executor", "count": count})


def executors(mesh: SmallMesh) -> list[str]:
    rows = control.ask(mesh.data, {"verb": "status"})["processes"]
    return [row["instance"] for row in rows if row["service"] == "executor"]
