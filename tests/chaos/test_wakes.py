"""A session always wakes: kill -9 in each window of a heartbeat, trigger and reset; each kind of wake starts one run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from anchorwatch.edges import Edge
from anchorwatch.journal.history import History
from anchorwatch.mesh.credentials import SERVICES

from tests.chaos.case import Case
from tests.chaos.mesh import ChaosMesh, ChaosSession, chaos_mesh
from tests.support.waiting import eventually

HEARTBEAT_S = 1.0
WAKES_S_MAX = 60.0
IN_A_TURN = (
    Edge.PLANNER_ACQUIRE_BEFORE,
    Edge.PLANNER_ACQUIRE_AFTER,
    Edge.PLANNER_MODEL_BEFORE,
    Edge.PLANNER_MODEL_AFTER,
    Edge.PLANNER_END_BEFORE,
    Edge.PLANNER_END_AFTER,
    Edge.PLANNER_ACK_BEFORE,
)
OF_A_TICK = (
    Edge.PLANNER_SCHEDULE_BEFORE,
    Edge.PLANNER_SCHEDULE_AFTER,
    Edge.PLANNER_TICK_INPUT_BEFORE,
    Edge.PLANNER_TICK_INPUT_AFTER,
)
ACCEPTED = (Edge.GATEWAY_INPUT_BEFORE, Edge.GATEWAY_INPUT_AFTER)
ORDERED = (Edge.GATEWAY_CONTROL_BEFORE, Edge.GATEWAY_CONTROL_AFTER)


@pytest.fixture(scope="module")
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosMesh]:
    with chaos_mesh(tmp_path_factory.mktemp("wakes"), dict.fromkeys(SERVICES, 1)) as made:
        yield made


def ran(history: History, kind: str, after: int) -> bool:
    """Whether an ended run consumed a wake of this kind that was accepted after a sequence."""
    runs = [each.anchor.run_id for each in history.anchors if each.kind == "turn_ended"]
    return any(wake.kind == kind and wake.sequence > after for run in runs for wake in history.taken(run))


async def starts_a_run(actor: ChaosSession, kind: str, wake: Callable[[], Awaitable[object]] | None) -> None:
    """Cause a wake and wait for its run. ``wake`` None: the mesh causes it."""
    before = (await actor.journal.history()).last_sequence
    if wake is not None:
        await wake()

    async def there() -> bool:
        return ran(await actor.journal.history(), kind, before)

    await eventually(there, WAKES_S_MAX, f"a {kind} starts a run")


async def killed_during(case: Case, wake: Callable[[], Awaitable[object]] | None) -> None:
    """The case's process dies in its window and is replaced."""
    waking = asyncio.ensure_future(wake()) if wake is not None else None
    try:
        await case.death()
        await case.back()
        if waking is not None:
            await waking
    finally:
        if waking is not None:
            waking.cancel()


@pytest.mark.parametrize("edge", [*OF_A_TICK, *IN_A_TURN], ids=str)
async def test_heartbeat_and_the_next_one_survive_a_planner_kill(chaos: ChaosMesh, edge: Edge) -> None:
    async with chaos.mesh.bus() as bus:
        case = Case(chaos, chaos.actor(bus, heartbeat_s=HEARTBEAT_S), edge, 1, parallel=False)
        await case.actor.make()
        await starts_a_run(case.actor, "tick", None)
        await case.arm()
        await killed_during(case, None)
        await starts_a_run(case.actor, "tick", None)
        assert await case.actor.violations() == []
        await case.actor.leave()


@pytest.mark.parametrize("edge", [*ACCEPTED, *IN_A_TURN], ids=str)
async def test_trigger_runs_once_whichever_process_is_killed(chaos: ChaosMesh, edge: Edge) -> None:
    async with chaos.mesh.bus() as bus:
        case = Case(chaos, chaos.actor(bus), edge, 1, parallel=False)
        await case.actor.make()
        await case.arm()
        await killed_during(case, case.actor.trigger)
        assert await case.actor.violations() == []
        history = await case.actor.rest()
        assert [wake.kind for wake in history.inputs].count("trigger") == 1
        assert ran(history, "trigger", 0)
        await case.actor.leave()


@pytest.mark.parametrize("edge", [*ORDERED, *IN_A_TURN], ids=str)
async def test_each_kind_of_wake_starts_a_run_after_a_reset_in_a_turn(chaos: ChaosMesh, edge: Edge) -> None:
    async with chaos.mesh.bus() as bus:
        case = Case(chaos, chaos.actor(bus, heartbeat_s=HEARTBEAT_S), edge, 1, parallel=False)
        actor = case.actor
        await actor.make()
        await in_the_middle_of_a_turn(actor)
        before = (await actor.journal.history()).last_sequence
        await case.arm()
        await killed_during(case, actor.reset)
        history = await actor.journal.history()
        assert [each.anchor.reset_count for each in history.of_kind("reset")] == [1]

        async def canary_ran() -> bool:
            return ran(await actor.journal.history(), "canary", before)

        await eventually(canary_ran, WAKES_S_MAX, "a canary runs after the reset")
        await starts_a_run(actor, "tick", None)
        await starts_a_run(actor, "trigger", actor.trigger)
        await starts_a_run(actor, "event", lambda: actor.publish("a note"))
        assert await actor.violations() == []
        await actor.leave()


async def in_the_middle_of_a_turn(actor: ChaosSession) -> None:
    """Start a long command, so that the turn stays open."""
    await actor.say([("build", "a", "hang")])

    async def claimed() -> bool:
        return bool((await actor.journal.history()).claims)

    await eventually(claimed, WAKES_S_MAX, "its command is claimed")
