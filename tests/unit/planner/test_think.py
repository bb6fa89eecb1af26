"""The outcome of a turn, and when its session is checked next."""

from __future__ import annotations

from dataclasses import replace

import pytest
from anchorwatch.core.anchor import Anchor, RunOutcome
from anchorwatch.core.session.outcome import judge
from anchorwatch.core.session.state import Call, CallState, SessionState, Step, Turn
from anchorwatch.core.times import iso
from anchorwatch_planner.decision import next_check_ms

ACTING = frozenset({"fire"})


def turn(*calls: Call) -> Turn:
    return Turn(1, "turn_1", 0, 1, 1, (), (Step(1, "", calls),))


def call(tool: str, state: CallState, **data: object) -> Call:
    return Call(1, tool, {}, state=state, data=data)


@pytest.mark.parametrize(
    ("calls", "emergency", "outcome"),
    [
        ((), None, "no_action"),
        ((), "workers dead", "unresolved"),
        ((call("look", "succeeded"),), "workers dead", "unresolved"),
        ((call("fire", "refused"),), "workers dead", "unresolved"),
        ((call("fire", "succeeded"),), "workers dead", "success"),
        ((call("fire", "succeeded"),), None, "success"),
        ((call("fire", "unknown"),), None, "unresolved"),
        ((call("fire", "succeeded"), call("fire", "unknown")), None, "unresolved"),
        ((call("fire", "failed"),), None, "failed"),
        ((call("look", "failed"),), None, "no_action"),
    ],
)
def test_finished_model_is_not_success(
    calls: tuple[Call, ...], emergency: str | None, outcome: RunOutcome
) -> None:
    assert judge(turn(*calls), emergency, ACTING)[0] == outcome


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ((call("fire", "succeeded"),), "fire succeeded, but all died"),
        ((call("fire", "failed"),), "fire failed, but all died"),
        ((), "all died"),
    ],
)
def test_success_that_leads_to_nothing_is_unresolved(calls: tuple[Call, ...], reason: str) -> None:
    assert judge(turn(*calls), None, ACTING, "all died") == ("unresolved", reason)


def session(stuck: int, *calls: Call) -> SessionState:
    anchor = Anchor(workspace="w", session="s", agent="a@1", runs_without_progress=stuck)
    return SessionState(anchor=anchor, turn=turn(*calls))


def test_heartbeat_bounds_every_check() -> None:
    assert next_check_ms(session(0), "no_action", 300, 1_000) == 301_000
    later = session(0, call("schedule_next_check", "succeeded", next_check_at_ms=900_000))
    assert next_check_ms(later, "success", 300, 1_000) == 301_000
    sooner = session(0, call("schedule_next_check", "succeeded", next_check_at_ms=60_000))
    assert next_check_ms(sooner, "success", 300, 1_000) == 60_000
    failed = session(0, call("schedule_next_check", "failed", next_check_at_ms=60_000))
    assert next_check_ms(failed, "success", 300, 1_000) == 301_000


def test_turn_without_progress_is_retried_later_and_later() -> None:
    waits = [next_check_ms(session(stuck), "unresolved", 300, 0) for stuck in range(7)]
    assert waits == [15_000, 30_000, 60_000, 120_000, 240_000, 300_000, 300_000]


def test_unrelated_wake_up_does_not_delay_a_requested_check() -> None:
    asked = session(0)
    assert asked.anchor is not None
    asked = asked._replace(anchor=replace(asked.anchor, next_check_at=iso(60_000)))
    assert next_check_ms(asked, "no_action", 300, 1_000) == 60_000
    assert next_check_ms(asked, "no_action", 300, 60_000) == 360_000, "it is over"
    anew = asked._replace(turn=turn(call("schedule_next_check", "succeeded", next_check_at_ms=120_000)))
    assert next_check_ms(anew, "success", 300, 1_000) == 120_000, "it was replaced"
