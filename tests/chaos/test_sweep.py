"""kill -9 at every durable edge of every service: nothing is lost, nothing is done twice, nothing is guessed.

A new edge is swept without a word here. Where its case does not come to it, the case fails: it needs a play of its own
(`sweeping.PLAYS`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from anchorwatch.core.agents import Limits
from anchorwatch.edges import Edge
from anchorwatch.mesh.credentials import SERVICES

from tests.chaos.case import Case
from tests.chaos.scene import Scene, playing
from tests.chaos.sweeping import BUDGET, OUTGROWS, OVERFLOWS, WAITING_MAX, play

REACHED_AGAIN = frozenset(
    {
        Edge.OBSERVER_INPUT_AFTER,
        Edge.PLANNER_ACQUIRE_AFTER,
        Edge.PLANNER_STEP_BEFORE,
        Edge.PLANNER_STEP_AFTER,
        Edge.PLANNER_END_AFTER,
        Edge.EXECUTOR_CLAIM_BEFORE,
        Edge.EXECUTOR_CLAIM_AFTER,
        Edge.EXECUTOR_EFFECT_BEFORE,
        Edge.EXECUTOR_EFFECT_AFTER,
        Edge.EXECUTOR_OUTCOME_BEFORE,
        Edge.EXECUTOR_OUTCOME_AFTER,
        Edge.EXECUTOR_ACK_BEFORE,
        Edge.NOTIFIER_SEND_AFTER,
        Edge.NOTIFIER_DELIVERY_AFTER,
        Edge.MEMORY_STORE_AFTER,
    }
)
"""With parallel commands their processes die at the second reach, where more than one thing is in hand."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with playing(tmp_path_factory.mktemp("sweep"), dict.fromkeys(SERVICES, 1)) as made:
        yield made


@pytest.mark.parametrize("commands", ["single", "parallel"])
@pytest.mark.parametrize("edge", Edge, ids=str)
async def test_process_killed_at_an_edge_breaks_no_guarantee(scene: Scene, edge: Edge, commands: str) -> None:
    parallel = commands == "parallel"
    async with scene.mesh.bus() as bus:
        limits = Limits(
            context_tokens_max=BUDGET if edge in OUTGROWS else None,
            waiting_max=WAITING_MAX if edge in OVERFLOWS else None,
        )
        case = Case(
            scene,
            scene.actor(bus, limits=limits),
            edge,
            2 if parallel and edge in REACHED_AGAIN else 1,
            parallel,
        )
        await play(case)
        assert await case.actor.violations() == []
        await case.actor.leave()
