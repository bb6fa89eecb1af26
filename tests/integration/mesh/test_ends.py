"""However the mesh ends, nothing of it is left; and while it ends, it does so in order."""

import os
import signal

import pytest
from anchorwatch.mesh.lock import held_by

from tests.integration.mesh.meshes import SmallMesh, all_gone
from tests.support.waiting import until


def test_ctrl_c_ends_everything_in_order(mesh: SmallMesh) -> None:
    mesh.up("executor=2")
    assert mesh.front is not None
    pids = mesh.pids
    # As a terminal does: to everything in the foreground.
    os.killpg(mesh.front.pid, signal.SIGINT)
    assert mesh.front.wait(60) == 0
    all_gone(pids)
    ends = mesh.ends()
    assert sorted(ends) == sorted(f"{name} TERM" for name in (
        "observer-1", "planner-1", "executor-1", "executor-2", "memory-1", "notifier-1", "gateway-1", "yard-1"))  # fmt: skip
    assert ends[-1] == "yard-1 TERM"
    log = mesh.data.log("nats").read_text()
    assert "Server Exiting" in log
    assert not mesh.data.mesh.exists()


def test_everything_is_in_the_process_group_of_the_supervisor(mesh: SmallMesh) -> None:
    mesh.up()
    assert {os.getpgid(pid) for pid in mesh.pids} == {mesh.mesh.pid}


def test_killing_the_process_that_was_started_leaves_nothing(mesh: SmallMesh) -> None:
    mesh.up()
    assert mesh.front is not None
    pids = mesh.pids
    mesh.front.kill()
    all_gone(pids)


def test_killing_the_supervisor_leaves_nothing_and_the_front_says_so(mesh: SmallMesh) -> None:
    mesh.up()
    assert mesh.front is not None
    assert mesh.front.stdout is not None
    pids = mesh.pids
    os.kill(mesh.mesh.pid, signal.SIGKILL)
    assert mesh.front.wait(10) == 1
    assert mesh.front.stdout.read().endswith(
        "the supervisor was killed, and the mesh with it (`anchorwatch up` continues)\n"
    )
    all_gone(pids)


def test_killing_a_detached_supervisor_leaves_nothing(mesh: SmallMesh) -> None:
    assert mesh.run("--detach").returncode == 0
    pids = mesh.pids
    os.kill(mesh.mesh.pid, signal.SIGKILL)
    all_gone(pids)
    assert held_by(mesh.data) is None


def test_a_service_that_will_not_end_is_killed(mesh: SmallMesh) -> None:
    mesh.order("planner.stubborn")
    mesh.environment["SMALL_MESH_STOP_S"] = "0.3"
    mesh.up()
    assert mesh.front is not None
    pids = mesh.pids
    mesh.front.send_signal(signal.SIGTERM)
    assert mesh.front.wait(60) == 0
    all_gone(pids)
    assert "planner-1 TERM" not in mesh.ends()
    assert mesh.ends()[-1] == "yard-1 TERM"


def test_told_twice_it_hurries(mesh: SmallMesh) -> None:
    mesh.order("planner.stubborn")
    mesh.up()
    assert mesh.front is not None
    pids = mesh.pids
    mesh.front.send_signal(signal.SIGINT)
    until(lambda: "gateway-1 TERM" in mesh.ends())
    mesh.front.send_signal(signal.SIGINT)
    assert mesh.front.wait(5) == 0
    all_gone(pids)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_every_polite_signal_is_an_orderly_end(mesh: SmallMesh, how: signal.Signals) -> None:
    mesh.up()
    assert mesh.front is not None
    pids = mesh.pids
    mesh.front.send_signal(how)
    assert mesh.front.wait(60) == 0
    all_gone(pids)
