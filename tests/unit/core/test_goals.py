"""Objectives that compare a fact with a number, and the turns that missed them."""

from __future__ import annotations

from typing import Any

import pytest
from anchorwatch.core.session.commands import Direct, EndTurn
from anchorwatch.core.session.events import AnchorChanged
from anchorwatch.core.session.goals import MISSED_RUNS, Goal, goal_of, missed_after

from tests.unit.core.test_session_machine import ME, acquire, created

GOAL = "proofs_per_hour >= 500"


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        (GOAL, Goal("proofs_per_hour", ">=", 500)),
        (" cost_per_hour<-2.5 ", Goal("cost_per_hour", "<", -2.5)),
        ("500 proofs per hour", None),
        ("keep proofs_per_hour >= 500", None),
        ("a >= 5 and b < 3", None),
        ("é >= 5", None),
    ],
)
def test_comparison_is_recognised_only_in_its_form(text: str, goal: Goal | None) -> None:
    assert goal_of(text) == goal


@pytest.mark.parametrize(
    ("value", "count"), [(499, 3), (499.9, 3), (500, 0), (None, 2), (True, 2), ("499", 2)]
)
def test_unknown_fact_neither_meets_nor_misses(value: Any, count: int) -> None:
    after = missed_after([GOAL, "be kind"], {GOAL: 2, "gone": 7}, {"proofs_per_hour": value})
    assert after == ({GOAL: count} if count else {})


def test_missed_objective_is_counted_and_told_once() -> None:
    story = created()
    story.do(Direct("ada", 1_000, "objectives", "set", (GOAL,)))
    told = []
    for value in (100, 100, 100, 100, None, 600, 100, 100, 100):
        story.do(acquire(story))
        facts = {"proofs_per_hour": value}
        story.do(EndTurn(ME, "no_action", "", {}, 9_000, None, None, 3_000, goal_facts=facts))
        anchor = story.state.anchor
        assert anchor is not None
        ended = story.records[-1].event
        assert isinstance(ended, AnchorChanged)
        told.append((anchor.objectives_missed.get(GOAL, 0), bool(ended.more.get("missed"))))
    streak = [(1, False), (2, False), (MISSED_RUNS, True)]
    assert told == [*streak, (4, False), (4, False), (0, False), *streak]
