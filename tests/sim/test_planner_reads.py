"""What a planner reads of the journal: no more than it must, and never less."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from anchorwatch.models.port import Situation, StepDecision
from anchorwatch.testing.mesh import SimMesh

from tests.sim.test_planner import agent, mesh_test, obedient, once

QUIET: dict[str, float] = {"debounce_p0_s": 0, "debounce_p1_s": 0, "sweep_s": 3600}


def test_a_turn_of_one_call_reads_the_journal_twice(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", ("executor", obedient))
        ref = await mesh.session("s", agent(tmp_path, once("set"), heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        lines: list[str] = []
        mesh.server.trace_lines = lines
        await mesh.say(ref, "one", kind="event", priority=1)
        await mesh.until_rest(ref, 2)
        mine = [line for line in lines if "planner-1#1" in line]
        # When it was woken, and at rest again. The outcome of its call came to it by itself.
        assert sum("DIRECT.GET.JOURNAL" in line for line in mine) == 2

    mesh_test(1, body, **QUIET)


@pytest.mark.parametrize("seed", range(10))
def test_an_input_that_comes_while_a_turn_runs_is_taken_by_the_next(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        seen: list[int] = []

        def rules(situation: Situation) -> StepDecision:
            if not situation.steps:
                seen.append(len(situation.wakes))
            return once("set")(situation)

        # Two planners, so that the one that runs the turn is often not the one that is told of the input.
        await mesh.open("planner", "planner", ("executor", obedient))
        ref = await mesh.session("s", agent(tmp_path, rules, heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        seen.clear()
        for number in range(12):
            await mesh.say(ref, f"e{number}", kind="event", priority=1)
            await asyncio.sleep(mesh.server.latency() * 3)
        await asyncio.sleep(30)
        anchor = await mesh.anchor(ref)
        assert (anchor.status, sum(seen)) == ("idle", 12), "each input is in exactly one turn"

    mesh_test(seed, body, **QUIET)
