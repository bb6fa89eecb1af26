"""Processes and the server killed at random under load. `ANCHORWATCH_CHAOS_SEED=N` repeats the kills of seed N."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Iterator

import pytest
from anchorwatch.mesh.credentials import SERVICES
from anchorwatch.mesh.roster import NATS
from anchorwatch.testing.crash_test.kills import KillRunner, Plan, TimedKill, make_plan

from tests.chaos.mesh import ChaosMesh, ChaosSession, chaos_mesh

SEEDS = [int(os.environ["ANCHORWATCH_CHAOS_SEED"])] if "ANCHORWATCH_CHAOS_SEED" in os.environ else [1, 2]
KILLS = 10
SESSIONS = 4
PAUSE_S = 0.15
MODES = ("ok", "ok", "ok", "lost_once", "artifact", "refuse")


@pytest.fixture(scope="module")
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosMesh]:
    counts = {**dict.fromkeys(SERVICES, 1), "executor": 2}
    with chaos_mesh(tmp_path_factory.mktemp("random"), counts) as made:
        yield made


@pytest.mark.parametrize("seed", SEEDS)
async def test_kills_under_load_break_no_guarantee(chaos: ChaosMesh, seed: int) -> None:
    await survives(chaos, make_plan(seed, chaos.mesh.instances, KILLS, edges=()))


async def test_server_killed_under_load_loses_nothing_acknowledged(
    chaos: ChaosMesh,
) -> None:
    await survives(chaos, Plan(0, {}, [TimedKill(NATS, 1.0)] * 5))


async def survives(chaos: ChaosMesh, plan: Plan) -> None:
    """Several sessions get input while the plan runs; afterwards each is at rest without a violation."""
    print(f"seed {plan.seed}: {', '.join(kill.instance for kill in plan.kills)}")
    async with chaos.mesh.bus() as bus:
        sessions = [chaos.actor(bus) for _ in range(SESSIONS)]
        await asyncio.gather(*(session.make() for session in sessions))
        killer = KillRunner(chaos.mesh, plan)
        killing = asyncio.create_task(killer.run())
        load = [asyncio.create_task(keep_sending(session, killer, plan.seed)) for session in sessions]
        try:
            await asyncio.gather(*load)
        finally:
            for task in (killing, *load):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await killing
        await killer.disarm()
        assert killer.crashes == []
        assert len(killer.kills) == len(plan.kills)
        for session in sessions:
            assert await session.violations() == []
            await session.leave()


async def keep_sending(session: ChaosSession, killer: KillRunner, seed: int) -> None:
    """Send messages with calls of every class, and events, until the plan is done."""
    chance = random.Random(f"{seed}/{session.name}")
    number = 0
    while not killer.done:
        number += 1
        steps = [
            [
                (
                    chance.choice(("set", "build", "fire", "look")),
                    f"{number}-{step}-{n}",
                    chance.choice(MODES),
                )
                for n in range(chance.randint(1, 3))
            ]
            for step in range(chance.randint(1, 2))
        ]
        await session.say(*steps)
        await session.publish(f"note {number}")
        await asyncio.sleep(PAUSE_S)
