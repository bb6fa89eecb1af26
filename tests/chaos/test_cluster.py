"""A mesh on three servers that lose their leader repeatedly under load."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import pytest
from anchorwatch.bus.jetstream import JetStreamBus
from anchorwatch.mesh.credentials import SERVICES, mesh_users
from anchorwatch.testing.crash_test.mesh import CrashMesh
from anchorwatch.topology.streams import journal_stream

from tests.chaos.mesh import ChaosMesh, ChaosSession, chaos_mesh
from tests.support.nats_server import Cluster, User, start_cluster
from tests.support.waiting import eventually

LEADERS_KILLED = 3
MORE = 6
"""The number of messages acknowledged between two kills, so that each kill meets a busy mesh."""
SESSIONS = 3
PAUSE_S = 0.2
# An election takes 4.5-8 s, and the first one comes with the streams.
PROGRESS_S_MAX = 60.0


@dataclass
class ClusterMesh(CrashMesh):
    """A mesh on three servers."""

    cluster: Cluster | None = None

    @property
    def nats_url(self) -> str:
        assert self.cluster is not None
        return ",".join(self.cluster.urls)

    async def start_nats(self) -> None:
        users = [User(name, self.roster.credentials.passwords[name]) for name in mesh_users()]
        self.cluster = await asyncio.to_thread(start_cluster, self.root / "cluster", users)

    def close(self) -> None:
        super().close()
        if self.cluster is not None:
            self.cluster.kill9()


@pytest.fixture(scope="module")
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosMesh]:
    root = tmp_path_factory.mktemp("cluster")
    settings = {"ANCHORWATCH_NATS_REPLICAS": "3"}
    with chaos_mesh(root, dict.fromkeys(SERVICES, 1), settings, ClusterMesh) as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_cluster_keeps_its_guarantees_across_leader_losses(chaos: ChaosMesh) -> None:
    cluster = cast("ClusterMesh", chaos.mesh).cluster
    assert cluster is not None
    async with chaos.mesh.bus() as bus:
        sessions = [chaos.actor(bus) for _ in range(SESSIONS)]
        for session in sessions:
            await session.make()
        over = asyncio.Event()
        load = [asyncio.create_task(keep_sending(session, over)) for session in sessions]
        try:
            for _ in range(LEADERS_KILLED):
                await more_is_accepted(sessions)
                leader = cluster.named(await cast("JetStreamBus", bus).leader(journal_stream()))
                await asyncio.to_thread(leader.kill9)
                await more_is_accepted(sessions)
                await asyncio.to_thread(leader.start)
            over.set()
            await asyncio.gather(*load)
        finally:
            for task in load:
                task.cancel()
        assert chaos.mesh.ended() == {}, "whoever lives rides it out"
        for session in sessions:
            assert await session.violations() == []


async def keep_sending(session: ChaosSession, over: asyncio.Event) -> None:
    number = 0
    while not over.is_set():
        number += 1
        await session.say(
            [("set", f"{number}-a", "ok"), ("build", f"{number}-b", "ok")], [("fire", f"{number}-c", "ok")]
        )
        await session.publish(f"note {number}")
        await asyncio.sleep(PAUSE_S)


async def more_is_accepted(sessions: list[ChaosSession]) -> None:
    def accepted() -> int:
        return sum(len(session.acknowledged.inputs) for session in sessions)

    goal = accepted() + MORE

    async def enough() -> bool:
        return accepted() >= goal

    await eventually(enough, PROGRESS_S_MAX, "messages are accepted")
