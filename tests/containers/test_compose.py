"""The mesh in real containers: compose.yaml as it stands, and an incident from end to end."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.containers.compose import Mesh, eventually, mesh_up
from tests.containers.engine import Engine
from tests.containers.incident import publish, turn_about

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]

EXECUTORS = 3
RESTART_S_MAX = 30.0


@pytest.fixture(scope="module")
def mesh(engine: Engine) -> Iterator[Mesh]:
    with mesh_up(engine, "--scale", f"executor={EXECUTORS}") as up:
        yield up


async def test_event_from_outside_becomes_an_ended_turn(mesh: Mesh) -> None:
    await publish(mesh, "outside-1")

    anchor = turn_about(mesh, "outside-1")

    assert anchor["last_run_id"] == anchor["run_count"] == anchor["run_id"]
    assert anchor["fence"]["run"] == anchor["run_id"] + 1


async def test_killed_executor_restarts_and_serves_the_next_event(mesh: Mesh) -> None:
    executors = mesh.containers("executor")
    assert len(executors) == EXECUTORS
    victim = executors[0]
    restarts = mesh.restarts(victim)

    mesh.kill9(victim)

    eventually(lambda: mesh.restarts(victim), lambda seen: seen == restarts + 1, RESTART_S_MAX)
    await publish(mesh, "outside-2")
    turn_about(mesh, "outside-2")


def test_every_service_runs_without_privileges(mesh: Mesh) -> None:
    ids = mesh.compose("ps", "--quiet").split()
    for state in json.loads(mesh.engine.run("docker", "inspect", *ids)):
        name, config, host = state["Name"], state["Config"], state["HostConfig"]
        assert config["User"] == "10001:10001", name
        assert host["ReadonlyRootfs"], name
        assert host["CapDrop"] == ["ALL"], name
        assert "no-new-privileges:true" in host["SecurityOpt"], name
        assert host["Memory"] > 0, name
        for bindings in host["PortBindings"].values():
            assert {binding["HostIp"] for binding in bindings} == {"127.0.0.1"}, name


def test_init_run_again_changes_no_credential(mesh: Mesh) -> None:
    before = mesh.read_secret("credentials/publisher")

    mesh.compose("run", "--rm", "-T", "init")

    assert mesh.read_secret("credentials/publisher") == before
