"""The plan of a crash test follows from its seed."""

from __future__ import annotations

from collections import Counter

from anchorwatch.edges import Edge
from anchorwatch.mesh.roster import NATS
from anchorwatch.testing.crash_test.kills import edge_of, make_plan

INSTANCES = ("planner-1", "planner-2", "executor-1")


def test_each_seed_has_its_own_plan() -> None:
    assert make_plan(5, INSTANCES, 9) == make_plan(5, INSTANCES, 9)
    assert make_plan(5, INSTANCES, 9) != make_plan(6, INSTANCES, 9)


def test_plan_kills_at_every_edge_and_every_process() -> None:
    plan = make_plan(5, INSTANCES, 9)
    assert set(plan.reaches) == set(Edge)
    assert all(1 <= reach <= 3 for reach in plan.reaches.values())
    assert len(plan.kills) == 9
    first = Counter(kill.instance for kill in plan.kills[:4])
    assert first == Counter([*INSTANCES, NATS])


def test_last_log_line_names_the_edge_of_a_death() -> None:
    assert edge_of('{"event": "failpoint.reached", "edge": "planner.step.after"}') is Edge.PLANNER_STEP_AFTER
    for line in (
        '{"event": "ready"}',
        '{"event": "failpoint.reached", "edge": "of.time"}',
        "",
        "[]",
        "Killed",
    ):
        assert edge_of(line) is None
