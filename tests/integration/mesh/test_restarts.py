"""What crashes is started again under the same name; the NATS server on the same port."""

import os
import signal
import time

from tests.integration.mesh.meshes import SmallMesh
from tests.support.waiting import until


def test_a_killed_service_comes_back_at_once_under_its_name(mesh: SmallMesh) -> None:
    mesh.up()
    before = mesh.pid("executor")
    os.kill(before, signal.SIGKILL)
    killed_at = time.monotonic()
    after = until(lambda: next((pid for pid in mesh.mesh.pids["executor"] if pid != before), None))
    # Generous: other work shares this machine. What is promised is "at once", which a back-off of seconds would not be.
    assert time.monotonic() - killed_at < 2
    until(lambda: mesh.row("executor-1")["ready"])
    row = mesh.row("executor-1")
    assert (row["pid"], row["restarts"], row["last_exit"]) == (after, 1, -signal.SIGKILL)
    assert mesh.front is not None
    assert mesh.front.stdout is not None
    assert mesh.front.stdout.readline() == "executor-1 was killed by SIGKILL; it is started again\n"


def test_the_nats_server_comes_back_on_its_port_with_its_data(mesh: SmallMesh) -> None:
    mesh.up()
    url, before = mesh.mesh.nats_url, mesh.pid("nats")
    os.kill(before, signal.SIGKILL)
    until(lambda: mesh.row("nats")["ready"] and mesh.row("nats")["pid"] != before)
    assert mesh.row("nats")["restarts"] == 1
    assert mesh.mesh.nats_url == url


def test_one_that_crashes_again_and_again_is_started_more_and_more_slowly(mesh: SmallMesh) -> None:
    mesh.up()
    waits = []
    for _ in range(3):
        before = mesh.pid("planner")
        os.kill(before, signal.SIGKILL)
        at = time.monotonic()
        until(lambda: before not in mesh.mesh.pids["planner"] and mesh.mesh.pids["planner"])  # noqa: B023
        waits.append(time.monotonic() - at)
    assert waits[1] >= 0.2
    assert waits[2] >= 0.4
