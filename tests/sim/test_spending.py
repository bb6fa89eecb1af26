"""Usage and budgets, in the planner's real code: every answer counts, and no model is called beyond a budget."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.core.agents import AgentSpec, Limits
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Steer
from anchorwatch.core.session.spending import DAY_MS
from anchorwatch.edges import Edge
from anchorwatch.models.corrected import UNPROVED_RATIO
from anchorwatch.models.port import (
    Model,
    ModelReply,
    ModelRequest,
    ModelUnavailable,
    OnRetry,
    ProposedCall,
    Retry,
    StepDecision,
    ignore,
)
from anchorwatch.models.reply import EmptyAnswer
from anchorwatch.models.usage import Usage
from anchorwatch.testing.bus.loop import run as run_virtual
from anchorwatch.testing.mesh import SimMesh
from anchorwatch_planner import main as planner

from tests.sim.test_compaction import Scene, dies_and_comes_back, playing
from tests.sim.test_planner import agent, once

DAY_TOKENS = 4_000


def spec(tmp_path: Path) -> AgentSpec:
    made: AgentSpec = agent(tmp_path, once(), heartbeat_s=5, limits=Limits(day_tokens_max=DAY_TOKENS))
    return made


def never(number: int) -> ModelReply:
    raise AssertionError(f"nothing had to be summed up, and it was asked {number} times")


def test_daily_budget_stops_the_model_until_the_next_day(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        async def spent() -> bool:
            return (await scene.mesh.anchor(scene.ref)).last_run_outcome == "over_budget"

        await scene.mesh.until(spent, within_s=300)
        asked = len(scene.talker.sent)
        # Nothing is ever reported, so each request counts with the reserve of a count that nothing has proved.
        counted = [math.ceil(tokens * UNPROVED_RATIO) for tokens in scene.talker.sent]
        used = sum(counted)
        day = scene.mesh.server.now_ms() // DAY_MS
        assert used - counted[-1] < DAY_TOKENS <= used, "the call that spent the rest was the last"
        assert (await scene.state()).spent.ever.all == used, "what is not reported counts as it was counted"

        async def goes_on() -> bool:
            return len(scene.talker.sent) > asked

        scene.mesh.server.step_clock(24 * 3_600)
        await scene.mesh.until(goes_on, within_s=300)
        assert scene.mesh.server.now_ms() // DAY_MS > day
        assert (await scene.mesh.anchor(scene.ref)).last_run_outcome == "no_action"
        warned = [
            anchor["record"]["body"]["warning"]
            for anchor in await scene.mesh.anchors(scene.ref)
            if "warning" in json.dumps(anchor["record"])
        ]
        assert len(warned) == 1, "people hear of it once in a day"
        assert "of 4000 tokens" in warned[0]

    playing(spec(tmp_path), never, body)


COUNTED = 100
"""Tokens of each request, by the model's own count."""
RESERVED = math.ceil(COUNTED * UNPROVED_RATIO)
EMPTY = Usage(900, 4_000)
WORDS = StepDecision("I looked.")


@dataclass
class Scripted:
    """A model that does as the test says: for each attempt an answer, or the usage of one that is discarded."""

    attempts: list[ModelReply | Usage | None]
    asked: int = 0
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    name: str = "scripted"
    is_llm: bool = True

    def count(self, request: ModelRequest) -> int:
        del request
        return COUNTED

    async def complete(
        self, request: ModelRequest, deadline_s: float, on_retry: OnRetry = ignore
    ) -> ModelReply:
        del request, deadline_s
        await self.hold.wait()
        for attempt in range(2, 6):
            answer = self.attempts[min(self.asked, len(self.attempts) - 1)]
            self.asked += 1
            if isinstance(answer, ModelReply):
                return answer
            fault = ModelUnavailable("429") if answer is None else EmptyAnswer("nothing was said")
            fault.usage = answer
            if attempt > 4:
                break
            await on_retry(Retry(attempt, fault, 0.5))
        raise fault

    async def close(self) -> None: ...


@dataclass
class Trial:
    mesh: SimMesh
    ref: SessionRef
    model: Scripted

    async def state(self) -> SessionState:
        return await self.mesh.sessions.load(self.ref, 0)


def trying(
    tmp_path: Path,
    attempts: list[ModelReply | Usage | None],
    body: Callable[[Trial], Coroutine[Any, Any, None]],
    *,
    held: bool = False,
    **limits: int,
) -> None:
    async def main() -> None:
        model = Scripted(attempts)
        if not held:
            model.hold.set()

        def build(settings: object, spec: object, pack: object) -> Model:
            del settings, spec, pack
            return model

        mesh = SimMesh(seed=1)
        try:
            await mesh.open(("planner", partial(planner.run, build=build)))
            spec = agent(tmp_path, once(), heartbeat_s=3_600, limits=Limits(**limits))
            await body(Trial(mesh, await mesh.session("s", spec), model))
        finally:
            await mesh.close()

    run_virtual(main(), 1)


def test_spent_budget_stops_retries_of_discarded_answers(tmp_path: Path) -> None:
    async def body(trial: Trial) -> None:
        anchor = await trial.mesh.until_rest(trial.ref, 1)
        assert anchor.last_run_outcome == "over_budget"
        assert anchor.last_run_reason == "the day's budget is spent: 9800 of 6000 tokens"
        assert trial.model.asked == 2
        assert (await trial.state()).spent.ever.all == 9_800
        await trial.mesh.until_rest(trial.ref, 4, within_s=600)
        assert trial.model.asked == 2, "no later turn of the day asks"

    trying(tmp_path, [EMPTY], body, day_tokens_max=6_000)


def test_answers_discarded_before_a_failure_or_an_answer_count(tmp_path: Path) -> None:
    async def body(trial: Trial) -> None:
        anchor = await trial.mesh.until_rest(trial.ref, 1)
        assert anchor.last_run_outcome == "failed"
        assert (await trial.state()).spent.ever.all == 2 * 4_900, "a 429 uses nothing"
        await trial.mesh.until_rest(trial.ref, 2, within_s=300)
        spent = (await trial.state()).spent
        assert (spent.ever.all, spent.turn.all) == (4 * 4_900 + RESERVED, 2 * 4_900 + RESERVED)
        assert spent.ever.estimated == RESERVED, "an answer without a report is estimated"

    first = [EMPTY, None, None, EMPTY]
    trying(tmp_path, [*first, EMPTY, None, EMPTY, ModelReply(WORDS)], body)


@pytest.mark.parametrize("edge", [Edge.PLANNER_REQUEST_AFTER, Edge.PLANNER_MODEL_AFTER])
def test_request_of_a_killed_planner_stays_counted(tmp_path: Path, edge: Edge) -> None:
    async def body(trial: Trial) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(dies_and_comes_back(edge, trial.mesh.processes["planner-1"]))
            trial.model.hold.set()
        await trial.mesh.until_rest(trial.ref, 1)
        spent = (await trial.state()).spent.ever
        assert (spent.all, spent.estimated) == (4_900 + RESERVED, RESERVED)

    trying(tmp_path, [ModelReply(WORDS, EMPTY)], body, held=True)


def test_request_of_a_cancelled_turn_stays_counted(tmp_path: Path) -> None:
    async def body(trial: Trial) -> None:
        async def asked() -> bool:
            return (await trial.state()).spent.ever.all == RESERVED

        await trial.mesh.until(asked)
        await trial.mesh.control(trial.ref, Kind.CANCELLED, "cancel")
        trial.model.hold.set()
        await trial.mesh.until_rest(trial.ref, 2, within_s=300)
        spent = (await trial.state()).spent.ever
        assert (spent.all, spent.estimated) == (4_900 + RESERVED, RESERVED)

    trying(tmp_path, [ModelReply(WORDS, EMPTY)], body, held=True)


def test_answer_counts_that_a_message_made_obsolete(tmp_path: Path) -> None:
    async def body(trial: Trial) -> None:
        async def asked() -> bool:
            return (await trial.state()).spent.ever.all == RESERVED

        await trial.mesh.until(asked)
        turn = (await trial.state()).turn
        assert turn is not None
        now_ms = trial.mesh.server.now_ms()
        await trial.mesh.order(
            trial.ref, "k", lambda _, id_: Steer("ada", now_ms, turn.turn_id, "not that one", id_)
        )
        trial.model.hold.set()
        await trial.mesh.until_rest(trial.ref, 1)
        assert trial.model.asked == 2
        spent = (await trial.state()).spent.ever
        assert (spent.all, spent.estimated) == (2 * 4_900, 0)

    trying(tmp_path, [ModelReply(WORDS, EMPTY)], body, held=True)


def test_malformed_call_that_repeats_ends_the_turn(tmp_path: Path) -> None:
    async def body(trial: Trial) -> None:
        anchor = await trial.mesh.until_rest(trial.ref, 1)
        assert anchor.last_run_outcome == "failed"
        assert anchor.last_run_reason == "breaker: the model repeats the call launch"
        assert trial.model.asked == REPEATS_MAX + 2

    truncated = ProposedCall("launch", None, "c", '{"count": 2', "truncated")
    reply = ModelReply(StepDecision("", (truncated,)), Usage(COUNTED, 20), finish="length")
    trying(tmp_path, [reply], body, repeats_max=REPEATS_MAX)


REPEATS_MAX = 2
