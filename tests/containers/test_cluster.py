"""compose.cluster.yaml: three NATS nodes, and the one that leads the journal dies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import nats
import pytest
from anchorwatch.topology.streams import journal_stream

from tests.containers.compose import Mesh, mesh_up
from tests.containers.engine import Engine
from tests.containers.incident import publish, turn_about

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]

# The node whose port is published, by which the test comes in.
DOOR = "nats-1"
ELECTION_S = 1.0


@pytest.fixture(scope="module")
def mesh(engine: Engine) -> Iterator[Mesh]:
    with mesh_up(engine, files=("compose.yaml", "compose.cluster.yaml")) as up:
        yield up


async def leader_behind_the_door(mesh: Mesh) -> str:
    """The node that leads the journal, after it was moved off the one that this test needs."""
    client = await nats.connect(mesh.nats_url, user="cli", password=mesh.read_secret("credentials/cli"))
    try:
        while True:
            cluster = (await client.jetstream().stream_info(journal_stream())).cluster
            assert cluster is not None
            assert len(cluster.replicas or ()) == 2
            if cluster.leader is not None and cluster.leader != DOOR:
                return cluster.leader
            await client.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{journal_stream()}", b"", timeout=5)
            await asyncio.sleep(ELECTION_S)
    finally:
        await client.close()


async def test_events_become_turns_while_the_journals_leader_is_dead(mesh: Mesh) -> None:
    await publish(mesh, "cluster-1")
    turn_about(mesh, "cluster-1")
    leader = await leader_behind_the_door(mesh)

    # It stays away: docker takes this for a stop.
    mesh.compose("kill", "--signal", "KILL", leader)

    await publish(mesh, "cluster-2")
    turn_about(mesh, "cluster-2")
