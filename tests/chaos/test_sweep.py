"""kill -9 at every durable edge of every service: nothing is lost, done twice or guessed.

The sweep covers a new edge by itself. A case whose process does not reach its edge fails: it needs a scenario in
`scenarios.SCENARIOS`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from anchorwatch.core.agents import Limits
from anchorwatch.edges import Edge
from anchorwatch.mesh.credentials import SERVICES

from tests.chaos.case import Case
from tests.chaos.mesh import ChaosMesh, chaos_mesh
from tests.chaos.scenarios import BUDGET, NO_MODEL, OUTGROWS, OVERFLOWS, REQUESTS, WAITING_MAX, run_scenario

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
"""With parallel commands, the process dies when it reaches these edges for the second time, with several items in flight."""


@pytest.fixture(scope="module")
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosMesh]:
    with chaos_mesh(tmp_path_factory.mktemp("sweep"), dict.fromkeys(SERVICES, 1), NO_MODEL) as made:
        yield made


@pytest.mark.parametrize("commands", ["single", "parallel"])
@pytest.mark.parametrize("edge", Edge, ids=str)
async def test_process_killed_at_an_edge_breaks_no_guarantee(
    chaos: ChaosMesh, edge: Edge, commands: str
) -> None:
    parallel = commands == "parallel"
    async with chaos.mesh.bus() as bus:
        limits = Limits(
            context_tokens_max=BUDGET if edge in OUTGROWS else None,
            waiting_max=WAITING_MAX if edge in OVERFLOWS else None,
        )
        # The language model never answers, and the pack's rules decide in its place.
        model = {"model": "openai", "fallbacks": ("rules",)} if edge in REQUESTS else {}
        case = Case(
            chaos,
            chaos.actor(bus, limits=limits, **model),
            edge,
            2 if parallel and edge in REACHED_AGAIN else 1,
            parallel,
        )
        await run_scenario(case)
        assert await case.actor.violations() == []
        await case.actor.leave()
