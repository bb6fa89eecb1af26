"""Processes that are stopped (SIGSTOP) at an edge, replaced, and continued: nothing is done twice, and their records are late."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import pytest
from anchorwatch.core.records import Kind
from anchorwatch.edges import Edge
from anchorwatch.mesh.credentials import SERVICES
from anchorwatch.service.leases import lease_key
from anchorwatch.topology.streams import LEASES_BUCKET

from tests.chaos.mesh import ChaosMesh, ChaosSession, chaos_mesh
from tests.support.waiting import eventually, is_stopped

STOPPED_S_MAX = 60.0
LEASE_S = 2
TWO = ("observer", "planner", "executor", "notifier")
SETTINGS = {"ANCHORWATCH_LEASE_S": str(LEASE_S), "ANCHORWATCH_SWEEP_S": "1"}
STEP = [("set", "a", "ok"), ("build", "b", "ok"), ("fire", "c", "ok")]


@pytest.fixture(scope="module")
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosMesh]:
    counts = {service: 2 if service in TWO else 1 for service in SERVICES}
    with chaos_mesh(tmp_path_factory.mktemp("zombies"), counts, SETTINGS) as made:
        yield made


class Zombie:
    """The first process of a service: within the block it stops at an edge, and the second one replaces it.

    Before and after the block, both work.
    """

    def __init__(self, chaos: ChaosMesh, edge: Edge) -> None:
        self.instance, self.other = f"{edge.service}-1", f"{edge.service}-2"
        self._mesh, self._edge = chaos.mesh, edge

    async def __aenter__(self) -> Self:
        # No other process may reach the edge first.
        self._mesh.kill(self.other)
        self._mesh.start(self.instance, f"{self._edge}=stop")
        await self._mesh.ready_or_ended(self.instance)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for instance in (self.instance, self.other):
            self._mesh.start(instance)
            await self._mesh.ready(instance)

    async def replaced(self) -> None:
        """Wait until it has stopped, and start its replacement."""
        pid = self._mesh.children[self.instance].pid

        async def stopped() -> bool:
            return is_stopped(pid)

        await eventually(stopped, STOPPED_S_MAX, f"{self.instance} stops at {self._edge}")
        self._mesh.start(self.other)
        await self._mesh.ready(self.other)

    def comes_back(self) -> None:
        """Continue it where it stopped, and kill its replacement."""
        self._mesh.resume(self.instance)
        self._mesh.kill(self.other)


@pytest.mark.parametrize(
    "edge",
    [
        Edge.OBSERVER_INPUT_BEFORE,
        Edge.OBSERVER_ACK_BEFORE,
        Edge.PLANNER_ACQUIRE_BEFORE,
        Edge.PLANNER_STEP_BEFORE,
        Edge.PLANNER_END_BEFORE,
        Edge.EXECUTOR_CLAIM_BEFORE,
        Edge.EXECUTOR_EFFECT_BEFORE,
        Edge.EXECUTOR_EFFECT_AFTER,
        Edge.EXECUTOR_OUTCOME_BEFORE,
        Edge.NOTIFIER_CLAIM_BEFORE,
        Edge.NOTIFIER_SEND_BEFORE,
        Edge.NOTIFIER_DELIVERY_BEFORE,
    ],
    ids=str,
)
async def test_replaced_process_that_continues_does_nothing_twice(chaos: ChaosMesh, edge: Edge) -> None:
    async with chaos.mesh.bus() as bus:
        session = chaos.actor(bus)
        await session.make_and_rest()
        async with Zombie(chaos, edge) as zombie:
            await session.say(STEP)
            await session.publish("a note")
            await zombie.replaced()
            await session.rest()
            zombie.comes_back()
            await session.say([("set", "d", "ok")])
            await session.publish("another note")
            assert await session.violations() == []
        await session.leave()


@pytest.mark.parametrize("tool", ["set", "build", "fire"])
@pytest.mark.parametrize("edge", [Edge.EXECUTOR_EFFECT_BEFORE, Edge.EXECUTOR_OUTCOME_BEFORE], ids=str)
async def test_outcome_of_a_replaced_executor_is_recorded_as_late(
    chaos: ChaosMesh, edge: Edge, tool: str
) -> None:
    async with chaos.mesh.bus() as bus:
        session = chaos.actor(bus)
        await session.make()
        async with Zombie(chaos, edge) as zombie:
            await session.say([(tool, "a", "ok")])
            await zombie.replaced()
            before = await session.rest()
            assert before.late == ()
            zombie.comes_back()
            await is_late(session)
            history = await session.rest()
            assert [each.outcome for each in history.outcomes] == [each.outcome for each in before.outcomes]
            assert len(session.world.effects()) == 1
            assert await session.violations() == []
        await session.leave()


async def test_sweep_continues_after_its_lease_holder_is_stopped(chaos: ChaosMesh) -> None:
    """Another planner takes the lease, and finds the turn without an owner."""
    async with chaos.mesh.bus() as bus:
        session = chaos.actor(bus)
        await session.make_and_rest()
        async with Zombie(chaos, Edge.PLANNER_ACQUIRE_AFTER) as zombie:
            leases = await bus.bucket(LEASES_BUCKET)

            async def sweeps() -> bool:
                entry = await leases.get(lease_key("sweep"))
                return entry is not None and json.loads(entry.value)["instance"] == zombie.instance

            await eventually(sweeps, 20, "it holds the lease of the sweep")
            await session.say(STEP)
            await zombie.replaced()
            history = await session.rest()
            assert len(history.of_kind(Kind.TAKEN_OVER)) == 1
            zombie.comes_back()
            await session.say([("set", "d", "ok")])
            assert await session.violations() == []
        await session.leave()


async def is_late(session: ChaosSession) -> None:
    async def there() -> bool:
        history = await session.journal.history()
        return [each.outcome.owner.instance for each in history.late] == ["executor-1"]

    await eventually(there, 20, "its late outcome is recorded")
