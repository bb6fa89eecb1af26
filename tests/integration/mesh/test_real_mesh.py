"""``anchorwatch up`` with the real services: the first five minutes of a user."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.mesh.credentials import Credentials

from tests.integration.mesh.meshes import SmallMesh, all_gone
from tests.support.waiting import is_running, until

START_S_MAX = 10.0
"""What is promised of a machine that does nothing else; this one may."""
SLOWER_BY = 5


class RealMesh(SmallMesh):
    """With the real services, by the command line."""

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        ports = ("--port", "0", "--nats-port", "0")
        return [*PROGRAM, "up", "--data-dir", str(self.root), *ports, *arguments]

    def verb(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, *words, "--data-dir", str(self.root)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def json(self, *words: str) -> Any:
        done = self.verb(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def json_of(self, *words: str) -> Any:
        """Whatever it exits with."""
        return json.loads(self.verb(*words, "--json").stdout)


PROGRAM = (sys.executable, "-m", "anchorwatch.cli.main")


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealMesh]:
    mesh = RealMesh(tmp_path / "data")
    yield mesh
    mesh.end()


def test_up_then_everything_a_user_does_first(real: RealMesh) -> None:
    began = time.monotonic()
    started = real.run("--detach")
    assert started.returncode == 0, started.stderr
    assert time.monotonic() - began < START_S_MAX * SLOWER_BY
    for said in (
        real.mesh.api_url,
        real.mesh.nats_url,
        "no LLM is configured",
        "fleet jobs add",
        "tail fleet",
        " down",
    ):
        assert said in started.stdout

    # The first turn runs at once.
    until(lambda: real.json("anchor", "fleet")["run_count"] >= 1, 60)
    assert [row["name"] for row in real.json("agents")] == ["fleet-keeper"]
    assert [row["name"] for row in real.json("sessions")] == ["fleet"]

    told = real.json("doctor")
    assert told["ok"], told
    assert {check["name"] for check in told["checks"]} >= {"durable", "streams", "buckets", "fleet", "mesh"}

    # An event, a turn; and it is told.
    before = real.json("anchor", "fleet")["run_count"]
    assert real.verb("publish", "fleet", "instance.dead", "--priority", "P0").returncode == 0
    until(lambda: real.json("anchor", "fleet")["run_count"] > before, 60)
    assert any("event fleet.instance.dead" in entry["what"] for entry in real.json("timeline", "fleet"))
    assert all(wake["disposition"] for wake in real.json("wakes", "fleet"))

    # Work is done, by workers that are real processes; and each launch can be looked at by its printed id.
    assert real.verb("fleet", "jobs", "add", "3").returncode == 0
    until(lambda: real.json("fleet", "status")["facts"]["jobs_done"] == 3, 60)
    effect = next(each for each in real.json("effects") if each["tool"] == "launch_instances")
    assert real.json("show", effect["call"])["tool"] == "launch_instances"

    # Everything is killed; it goes on where it was.
    runs = real.json("anchor", "fleet")["run_count"]
    pids = real.pids
    os.kill(real.mesh.pid, signal.SIGKILL)
    all_gone(pids)
    assert real.verb("sessions").returncode == 3
    assert real.run("--detach").returncode == 0
    assert real.json("anchor", "fleet")["run_count"] >= runs
    assert len(real.json("sessions")) == 1

    pids = real.pids
    assert real.verb("down").returncode == 0
    all_gone(pids)
    assert files_with_secrets(real) == {"credentials.json", "nats.conf"}


def test_a_process_that_is_stopped_is_not_called_ready(real: RealMesh) -> None:
    assert real.run("--detach").returncode == 0
    assert real.json("status")["ready"]
    planner = real.mesh.pids["planner"][0]

    os.kill(planner, signal.SIGSTOP)
    seen = until(lambda: None if (state := real.json("status"))["ready"] else state, 30)

    assert seen
    rows = {each["instance"]: each for each in seen["processes"]}
    assert [name for name, row in rows.items() if not row["ready"]] == ["planner-1"]
    assert rows["planner-1"]["announced"]
    assert rows["planner-1"]["heard_at"]
    said = real.verb("status").stdout
    assert said.startswith("not ready:")
    assert "planner-1   no heartbeat since" in said
    told = next(each for each in real.json_of("doctor")["checks"] if each["name"] == "mesh")
    assert (told["state"], "planner-1 (no heartbeat since" in told["detail"]) == ("failed", True)

    os.kill(planner, signal.SIGCONT)
    until(lambda: real.json("status")["ready"], 30)


def files_with_secrets(real: RealMesh) -> set[str]:
    """The files of the data directory, logs and journal included, in which a password or the token stands."""
    credentials = Credentials.load(real.data)
    assert credentials is not None
    secrets = [word.encode() for word in (*credentials.passwords.values(), credentials.token)]
    files = [path for path in real.root.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"planner-1.log", "nats.log"}
    return {path.name for path in files if any(secret in path.read_bytes() for secret in secrets)}


def test_a_worker_of_the_fleet_does_not_outlive_the_mesh(real: RealMesh) -> None:
    real.up()
    workers = until(
        lambda: [each["pid"] for each in real.json("fleet", "status")["instances"] if each.get("pid")], 60
    )
    assert all(map(is_running, workers))
    assert real.front is not None
    real.front.kill()
    all_gone([*workers, *real.pids])
