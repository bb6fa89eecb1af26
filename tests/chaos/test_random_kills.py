"""Processes and the server killed at random, under load. `ANCHORWATCH_CHAOS_SEED=N` has the order of kills of seed N again."""

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

from tests.chaos.scene import Scene, Told, playing

SEEDS = [int(os.environ["ANCHORWATCH_CHAOS_SEED"])] if "ANCHORWATCH_CHAOS_SEED" in os.environ else [1, 2]
KILLS = 10
SESSIONS = 4
PAUSE_S = 0.15
MODES = ("ok", "ok", "ok", "lost_once", "artifact", "refuse")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    counts = {**dict.fromkeys(SERVICES, 1), "executor": 2}
    with playing(tmp_path_factory.mktemp("random"), counts) as made:
        yield made


@pytest.mark.parametrize("seed", SEEDS)
async def test_kills_under_load_break_no_guarantee(scene: Scene, seed: int) -> None:
    await survives(scene, make_plan(seed, scene.mesh.instances, KILLS, edges=()))


async def test_server_killed_under_load_loses_nothing_acknowledged(
    scene: Scene,
) -> None:
    await survives(scene, Plan(0, {}, [TimedKill(NATS, 1.0)] * 5))


async def survives(scene: Scene, plan: Plan) -> None:
    """Load on several sessions while the plan is carried out; then each of them is at rest, and whole."""
    print(f"seed {plan.seed}: {', '.join(kill.instance for kill in plan.kills)}")
    async with scene.mesh.bus() as bus:
        sessions = [scene.actor(bus) for _ in range(SESSIONS)]
        await asyncio.gather(*(session.make() for session in sessions))
        killer = KillRunner(scene.mesh, plan)
        killing = asyncio.create_task(killer.run())
        load = [asyncio.create_task(keep_telling(session, killer, plan.seed)) for session in sessions]
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


async def keep_telling(session: Told, killer: KillRunner, seed: int) -> None:
    """Messages with calls of every class, and events, until all the kills have been done."""
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
