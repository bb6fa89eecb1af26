"""Every kind of end leaves no process of the mesh; a requested stop is in order."""

import os
import signal

import pytest
from anchorwatch.mesh.lock import lock_holder

from tests.integration.mesh.meshes import SmallMesh, all_gone
from tests.support.waiting import until


def test_ctrl_c_stops_every_process_in_order(mesh: SmallMesh) -> None:
    mesh.up("executor=2")
    assert mesh.launcher is not None
    pids = mesh.pids
    # As a terminal does: to the process group in the foreground.
    os.killpg(mesh.launcher.pid, signal.SIGINT)
    assert mesh.launcher.wait(60) == 0
    all_gone(pids)
    ends = mesh.ends()
    assert sorted(ends) == sorted(f"{name} TERM" for name in (
        "observer-1", "planner-1", "executor-1", "executor-2", "memory-1", "notifier-1", "gateway-1", "yard-1"))  # fmt: skip
    assert ends[-1] == "yard-1 TERM"
    log = mesh.data.log("nats").read_text()
    assert "Server Exiting" in log
    assert not mesh.data.mesh.exists()


def test_every_process_is_in_the_group_of_the_supervisor(mesh: SmallMesh) -> None:
    mesh.up()
    assert {os.getpgid(pid) for pid in mesh.pids} == {mesh.mesh.pid}


def test_killing_the_launcher_ends_every_process(mesh: SmallMesh) -> None:
    mesh.up()
    assert mesh.launcher is not None
    pids = mesh.pids
    mesh.launcher.kill()
    all_gone(pids)


def test_killing_the_supervisor_ends_all_and_is_reported(mesh: SmallMesh) -> None:
    mesh.up()
    assert mesh.launcher is not None
    assert mesh.launcher.stdout is not None
    pids = mesh.pids
    os.kill(mesh.mesh.pid, signal.SIGKILL)
    assert mesh.launcher.wait(10) == 1
    assert mesh.launcher.stdout.read().endswith(
        "the supervisor was killed, and the mesh with it (`anchorwatch up` continues)\n"
    )
    all_gone(pids)


def test_killing_a_detached_supervisor_ends_every_process(mesh: SmallMesh) -> None:
    assert mesh.run("--detach").returncode == 0
    pids = mesh.pids
    os.kill(mesh.mesh.pid, signal.SIGKILL)
    all_gone(pids)
    assert lock_holder(mesh.data) is None


def test_service_that_ignores_sigterm_is_killed(mesh: SmallMesh) -> None:
    mesh.order("planner.stubborn")
    mesh.environment["SMALL_MESH_STOP_S"] = "0.3"
    mesh.up()
    assert mesh.launcher is not None
    pids = mesh.pids
    mesh.launcher.send_signal(signal.SIGTERM)
    assert mesh.launcher.wait(60) == 0
    all_gone(pids)
    assert "planner-1 TERM" not in mesh.ends()
    assert mesh.ends()[-1] == "yard-1 TERM"


def test_second_signal_kills_every_process(mesh: SmallMesh) -> None:
    mesh.order("planner.stubborn")
    mesh.up()
    assert mesh.launcher is not None
    pids = mesh.pids
    mesh.launcher.send_signal(signal.SIGINT)
    until(lambda: "gateway-1 TERM" in mesh.ends())
    mesh.launcher.send_signal(signal.SIGINT)
    assert mesh.launcher.wait(5) == 0
    all_gone(pids)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_and_sighup_stop_the_mesh_in_order(mesh: SmallMesh, how: signal.Signals) -> None:
    mesh.up()
    assert mesh.launcher is not None
    pids = mesh.pids
    mesh.launcher.send_signal(how)
    assert mesh.launcher.wait(60) == 0
    all_gone(pids)
