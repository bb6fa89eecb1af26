"""The mesh in real containers: compose.yaml as it stands, and an incident from end to end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import nats
import pytest

from tests.containers.compose import Mesh, eventually, mesh_up
from tests.containers.engine import Engine

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]

SESSION = "fleet"
EXECUTORS = 3
TURN_S_MAX = 60.0
RESTART_S_MAX = 30.0


@pytest.fixture(scope="module")
def mesh(engine: Engine) -> Iterator[Mesh]:
    with mesh_up(engine, "--scale", f"executor={EXECUTORS}") as up:
        yield up


async def publish(mesh: Mesh, instance: str) -> None:
    """What any program outside would do: a plain client, the publisher's credentials, a JSON body."""
    client = await nats.connect(
        mesh.nats_url, user="publisher", password=mesh.read_secret("credentials/publisher")
    )
    body = {"instance": instance, "priority": "P0"}
    ack = await client.request("aw.event.default.fleet.instance.dead", json.dumps(body).encode(), timeout=5)
    await client.close()
    assert "error" not in json.loads(ack.data), ack.data


def anchor(mesh: Mesh) -> dict[str, Any]:
    found: dict[str, Any] = mesh.api(f"/api/sessions/{SESSION}/anchor")
    return found


def turns_ended(mesh: Mesh) -> int:
    return int(anchor(mesh)["run_count"])


def idle_after(mesh: Mesh, turns: int) -> dict[str, Any]:
    """The anchor, once more than so many turns have ended and none runs."""
    found: dict[str, Any] = eventually(
        lambda: anchor(mesh), lambda a: a["run_count"] > turns and a["status"] == "idle", TURN_S_MAX
    )
    return found


async def test_an_event_from_outside_becomes_an_ended_turn(mesh: Mesh) -> None:
    before = turns_ended(mesh)

    await publish(mesh, "i-1")

    after = idle_after(mesh, before)
    assert after["last_run_id"] == after["run_count"]
    assert after["fence"]["run"] == after["run_id"] + 1


async def test_a_killed_executor_comes_back_and_the_next_event_is_served(mesh: Mesh) -> None:
    executors = mesh.containers("executor")
    assert len(executors) == EXECUTORS
    before, victim = turns_ended(mesh), executors[0]
    restarts = mesh.restarts(victim)

    mesh.kill9(victim)

    eventually(lambda: mesh.restarts(victim), lambda seen: seen == restarts + 1, RESTART_S_MAX)
    await publish(mesh, "i-2")
    idle_after(mesh, before)


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
