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

import httpx2
import pytest
from anchorwatch.mesh.credentials import Credentials

from tests.integration.mesh.meshes import SmallMesh, all_gone
from tests.support.waiting import is_running, until

START_S_MAX = 10.0
"""The documented limit on an idle machine."""
LOADED_FACTOR = 5


class RealMesh(SmallMesh):
    """A mesh of the real services, used by the command line."""

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

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """A request to the HTTP API."""
        credentials = Credentials.load(self.data)
        assert credentials is not None
        headers = {"Authorization": f"Bearer {credentials.token}"}
        answer = httpx2.request(method, self.mesh.api_url + path, json=body, headers=headers, timeout=60)
        assert answer.is_success, answer.text
        return answer.json()

    def json_of(self, *words: str) -> Any:
        """The JSON of a verb with any exit code."""
        return json.loads(self.verb(*words, "--json").stdout)


PROGRAM = (sys.executable, "-m", "anchorwatch.cli.main")


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealMesh]:
    mesh = RealMesh(tmp_path / "data")
    yield mesh
    mesh.end()


def test_first_steps_of_a_user_after_up(real: RealMesh) -> None:
    began = time.monotonic()
    started = real.run("--detach")
    assert started.returncode == 0, started.stderr
    assert time.monotonic() - began < START_S_MAX * LOADED_FACTOR
    for text in (
        real.mesh.api_url,
        real.mesh.nats_url,
        "no LLM is configured",
        "fleet jobs add",
        "tail fleet",
        " down",
    ):
        assert text in started.stdout

    # The first turn runs at once.
    until(lambda: real.json("anchor", "fleet")["run_count"] >= 1, 60)
    assert [row["name"] for row in real.json("agents")] == ["fleet-keeper"]
    assert [row["name"] for row in real.json("sessions")] == ["fleet"]

    report = real.json("doctor")
    assert report["ok"], report
    assert {check["name"] for check in report["checks"]} >= {"durable", "streams", "buckets", "fleet", "mesh"}

    # An event causes a turn, and the timeline shows it.
    before = real.json("anchor", "fleet")["run_count"]
    assert real.verb("publish", "fleet", "instance.dead", "--priority", "P0").returncode == 0
    until(lambda: real.json("anchor", "fleet")["run_count"] > before, 60)
    assert any("event fleet.instance.dead" in entry["what"] for entry in real.json("timeline", "fleet"))
    assert all(wake["disposition"] for wake in real.json("wakes", "fleet"))

    # Workers are real processes; each launch can be shown by its printed id.
    assert real.verb("fleet", "jobs", "add", "3").returncode == 0
    until(lambda: real.json("fleet", "status")["facts"]["jobs_done"] == 3, 60)
    effect = next(each for each in real.json("effects") if each["tool"] == "launch_instances")
    assert real.json("show", effect["call"])["tool"] == "launch_instances"

    # The limit is that of the agent's newest version.
    spec = real.request("GET", "/api/agents/fleet-keeper")
    real.request("PUT", "/api/agents/fleet-keeper", {**spec, "config": {**spec["config"], "fleet_limit": 5}})
    assert real.json("fleet", "status")["facts"]["fleet_limit"] == 5
    assert "live of at most 5." in real.verb("fleet", "status").stdout

    # After a kill of every process, a new start continues the session.
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


def test_stopped_process_is_not_ready(real: RealMesh) -> None:
    assert real.run("--detach").returncode == 0
    assert real.json("status")["ready"]
    planner = real.mesh.pids["planner"][0]

    os.kill(planner, signal.SIGSTOP)
    state = until(lambda: None if (status := real.json("status"))["ready"] else status, 30)

    assert state
    rows = {each["instance"]: each for each in state["processes"]}
    assert [name for name, row in rows.items() if not row["ready"]] == ["planner-1"]
    assert rows["planner-1"]["announced"]
    assert rows["planner-1"]["heard_at"]
    text = real.verb("status").stdout
    assert text.startswith("not ready:")
    assert "planner-1   no heartbeat since" in text
    check = next(each for each in real.json_of("doctor")["checks"] if each["name"] == "mesh")
    assert (check["state"], "planner-1 (no heartbeat since" in check["detail"]) == ("failed", True)

    os.kill(planner, signal.SIGCONT)
    until(lambda: real.json("status")["ready"], 30)


def files_with_secrets(real: RealMesh) -> set[str]:
    """The files of the data directory, including logs and journal, that contain a password or the token."""
    credentials = Credentials.load(real.data)
    assert credentials is not None
    secrets = [word.encode() for word in (*credentials.passwords.values(), credentials.token)]
    files = [path for path in real.root.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"planner-1.log", "nats.log"}
    return {path.name for path in files if any(secret in path.read_bytes() for secret in secrets)}


def test_fleet_worker_does_not_outlive_the_mesh(real: RealMesh) -> None:
    real.up()
    workers = until(
        lambda: [each["pid"] for each in real.json("fleet", "status")["instances"] if each.get("pid")], 60
    )
    assert all(map(is_running, workers))
    assert real.launcher is not None
    real.launcher.kill()
    all_gone([*workers, *real.pids])
