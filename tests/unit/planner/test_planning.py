"""Which calls become commands: numbers, limits, and a model that repeats its calls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from anchorwatch.core.agents import Limits
from anchorwatch.core.session.events import StepHead
from anchorwatch.core.session.state import Call, Step, Turn
from anchorwatch.models.port import ProposedCall
from anchorwatch.models.rules import RulesModel
from anchorwatch_planner.decision import plan_calls, turns_in_circles
from anchorwatch_planner.runtimes import AgentRuntime

from tests.support.packs import BENCH, TOOLS, bench_agent


def runtime(**limits: Any) -> AgentRuntime:
    agent = bench_agent(Path()).model_copy(update={"limits": Limits(**limits)})
    return AgentRuntime(agent, BENCH, TOOLS, RulesModel(BENCH.rules))


MIND = runtime()
LOOK = ProposedCall("look", {"item": "a"})


def turn(*steps: Step) -> Turn:
    return Turn(1, "turn_1", 0, 1, 1, (), steps)


def looked(number: int) -> Step:
    return Step(number, "", (Call(1, "look", {"item": "a"}, state="succeeded", text="fine"),))


def test_call_number_is_its_position() -> None:
    proposed = [
        ProposedCall("fire", {"item": "a"}, "x:0"),
        ProposedCall("fire", None, "x:0", "{", "cut"),
        ProposedCall("look", {}, "x:0"),
    ]
    planned, rejected = plan_calls(proposed, MIND, turn())
    assert [(each.n, each.tool) for each in planned] == [(1, "fire"), (3, "look")]
    assert rejected == ((2, "fire", "x:0", "{", "cut"),)


def test_calls_above_the_limit_are_rejected() -> None:
    planned, rejected = plan_calls([ProposedCall("look", {})] * 5, runtime(calls_per_step_max=3), turn())
    assert (len(planned), [each[0] for each in rejected]) == (3, [4, 5])


def test_tool_without_grant_becomes_a_command() -> None:
    planned, rejected = plan_calls([ProposedCall("rm_rf", {"path": "/"})], MIND, turn())
    assert [(each.tool, each.pool) for each in planned] == [("rm_rf", "default")]
    assert rejected == ()


def test_repeated_call_is_rejected() -> None:
    before = turn(looked(1), looked(2))
    planned, rejected = plan_calls(
        [LOOK, replace(LOOK, arguments={"item": "b"})], runtime(repeats_max=2), before
    )
    assert [dict(each.args) for each in planned] == [{"item": "b"}]
    assert [each[4] for each in rejected] == [
        "this very call was made in this turn 2 times: do something else, or end the turn"
    ]


def test_turn_cycles_when_two_steps_only_repeat_calls() -> None:
    tired = runtime(repeats_max=1)
    _, rejected = plan_calls([LOOK], tired, turn(looked(1)))
    head = StepHead(2, "", None, None, rejected=rejected, calls=1)
    assert not turns_in_circles(turn(looked(1)), head, ())
    refused = Step(2, "", (Call(1, "look", {}, state="rejected", text=rejected[0][4]),))
    assert turns_in_circles(turn(looked(1), refused), head, ())
    other, _ = plan_calls([replace(LOOK, arguments={"item": "b"})], tired, turn(looked(1), refused))
    assert not turns_in_circles(turn(looked(1), refused), head, other)
