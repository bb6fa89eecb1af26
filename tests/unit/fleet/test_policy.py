from __future__ import annotations

from typing import Any

import pytest
from anchorwatch.cel import evaluate
from anchorwatch.core.facts import Observation
from anchorwatch.core.policy import Question, judge
from anchorwatch.packs import Emergency, Sighting
from anchorwatch_fleet.policy import INVARIANTS, emergency, reduce

from tests.unit.fleet.sights import NOW_MS, sight, worker, workers


def refusals(tool: str, args: dict[str, Any], observation: Observation) -> set[str]:
    """The invariants that refuse this call, each judged alone as the executor judges them together."""
    question = Question(tool, args, "r", [tool], {}, observation)
    return {each.name for each in INVARIANTS if judge(question, [each], evaluate).decision == "refused"}


STOP = {"instance_id": "w-1"}
DEAD, LAST = "no-scale-down-while-workers-are-dead", "keep-the-last-running-instance"


@pytest.mark.parametrize(
    ("instances", "tasks", "expected"),
    [
        pytest.param(workers(exited=3), 59, {DEAD, LAST}, id="the incident"),
        pytest.param(workers(hung=2), 59, {DEAD, LAST}, id="all hang"),
        pytest.param(workers(running=1), 5, {LAST}, id="the last one, with work"),
        pytest.param(workers(running=1, loading=2), 5, {LAST}, id="the last that runs, others load"),
        pytest.param(workers(running=2), 5, set(), id="one of two, with work"),
        pytest.param(workers(running=1), 0, set(), id="the last one, without work"),
        pytest.param(workers(exited=3), 0, set(), id="dead, without work"),
        pytest.param(workers(running=3), None, {DEAD, LAST}, id="demand unknown"),
        pytest.param(None, 0, {DEAD, LAST}, id="workers unknown"),
        pytest.param(None, 5, {DEAD, LAST}, id="workers unknown, with work"),
        pytest.param(None, None, {DEAD, LAST}, id="all unknown"),
    ],
)
def test_scaling_down_is_refused_while_it_would_hurt_or_might(
    instances: list[Any] | None, tasks: int | None, expected: set[str]
) -> None:
    assert refusals("stop_instance", STOP, sight(instances, tasks)) == expected


@pytest.mark.parametrize(
    ("instances", "count", "allowed"),
    [
        (workers(), 6, True),
        (workers(), 7, False),
        (workers(running=3, loading=1, hung=1), 1, True),
        (workers(running=3, loading=1, hung=1), 2, False),
        (workers(exited=9, stopped=9), 6, True),
        (None, 1, False),
    ],
)
def test_launching_stays_within_the_fleet_limit(
    instances: list[Any] | None, count: int, *, allowed: bool
) -> None:
    args = {"count": count, "launch_priority": "normal"}

    assert (refusals("launch_instances", args, sight(instances, 59)) == set()) is allowed


@pytest.mark.parametrize(
    ("instances", "tasks", "expected"),
    [
        (
            workers(exited=3),
            59,
            Emergency("workers-dead", "all workers are dead while 59 tasks are queued"),
        ),
        (workers(), 59, Emergency("no-workers", "no worker serves the 59 tasks that are queued")),
        (workers(loading=1, exited=3), 59, False),
        (workers(running=1), 59, False),
        (workers(running=1), None, False),
        (workers(exited=3), 0, False),
        (None, 0, False),
        (workers(exited=3), None, None),
        (None, 59, None),
        (None, None, None),
    ],
)
def test_emergency_is_unknown_where_a_deciding_fact_is(
    instances: list[Any] | None, tasks: int | None, expected: Sighting
) -> None:
    observation = sight(instances, tasks)

    assert emergency(observation.facts) == expected
    assert emergency(reduce({}, observation)) == expected


def test_anchor_says_unknown_where_an_older_anchor_knew() -> None:
    known = reduce({}, sight(workers(running=2), tasks=5))
    assert (known["tasks_queued"], known["workers_alive"]) == (5, 2)

    unknown = reduce(known, sight(None, None))
    assert (unknown["tasks_queued"], unknown["workers_alive"], unknown["demand_queued"]) == (None, None, None)


def test_anchor_records_since_when_the_fleet_is_idle_or_unseen() -> None:
    idle = reduce({}, sight([worker("w-1")]))
    idle = reduce(idle, sight([worker("w-1")], at_ms=NOW_MS + 1000))
    assert (idle["idle_since_ms"], idle["blind_since_ms"]) == (NOW_MS, 0)

    blind = reduce(idle, sight([worker("w-1")], tasks=None, at_ms=NOW_MS + 2000))
    blind = reduce(blind, sight([worker("w-1")], tasks=None, at_ms=NOW_MS + 3000))
    assert (blind["idle_since_ms"], blind["blind_since_ms"]) == (0, NOW_MS + 2000)

    seen = reduce(blind, sight([worker("w-1")], tasks=1, at_ms=NOW_MS + 4000))
    assert (seen["idle_since_ms"], seen["blind_since_ms"]) == (0, 0)
