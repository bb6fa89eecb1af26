"""The budget of a request, in the planner's real code: what is compared is what is sent."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.core.agents import Limits
from anchorwatch.models.port import Model, ModelReply, ModelRequest, OnRetry, StepDecision, ignore
from anchorwatch.models.rules import RulesModel
from anchorwatch.testing.mesh import SimMesh
from anchorwatch_planner import main as planner

from tests.sim.test_planner import agent, mesh_test, once

BUDGET = 1_400


@dataclass
class Recording:
    """A model that counts as the rules model does, and notes how large each request was that reached it."""

    inner: RulesModel
    sent: list[int] = field(default_factory=list)
    name: str = "recording"
    is_llm: bool = False

    def count(self, request: ModelRequest) -> int:
        return self.inner.count(request)

    async def complete(
        self, request: ModelRequest, deadline_s: float, on_retry: OnRetry = ignore
    ) -> ModelReply:
        del deadline_s, on_retry
        self.sent.append(self.inner.count(request))
        return ModelReply(StepDecision(f"looked at {len(request.messages)} messages. " + "words " * 60))

    async def close(self) -> None: ...


def playing(body: Callable[[SimMesh, list[int]], Coroutine[Any, Any, None]]) -> None:
    sent: list[int] = []

    def build(settings: object, spec: object, pack: Any) -> Model:
        del settings, spec
        return Recording(RulesModel(pack.rules), sent)

    async def run(mesh: SimMesh) -> None:
        await mesh.open(("planner", partial(planner.run, build=build)))
        await body(mesh, sent)

    mesh_test(1, run)


@pytest.mark.slow
def test_request_stays_within_budget_and_old_turns_make_room(
    tmp_path: Path,
) -> None:
    async def body(mesh: SimMesh, sent: list[int]) -> None:
        spec = agent(tmp_path, once(), heartbeat_s=60, limits=Limits(context_tokens_max=BUDGET))
        ref = await mesh.session("s", spec)
        await mesh.until_rest(ref, 30, within_s=3_000)
        anchor = await mesh.anchor(ref)
        assert anchor.last_run_outcome == "no_action"
        assert max(sent) <= BUDGET
        assert max(sent[10:]) > BUDGET * 0.7, "the room is used"
        assert anchor.prompt is not None
        assert anchor.prompt.tokens == sent[anchor.run_id - 1], "what is recorded is what was sent"

    playing(body)


def test_budget_that_nothing_fits_ends_the_turn_with_a_reason(
    tmp_path: Path,
) -> None:
    async def body(mesh: SimMesh, sent: list[int]) -> None:
        spec = agent(tmp_path, once(), heartbeat_s=3600, limits=Limits(context_tokens_max=256))
        ref = await mesh.session("s", spec)
        anchor = await mesh.until_rest(ref, 1)
        assert anchor.last_run_outcome == "over_budget"
        assert "budget is 256" in anchor.last_run_reason
        assert sent == []
        assert (await mesh.until_rest(ref, 4, within_s=600)).runs_without_progress == 4

    playing(body)
