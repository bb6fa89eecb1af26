"""When a wake is due, also where clocks do not agree."""

from __future__ import annotations

import pytest
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.state import P0, P1, Input, InputKind, Priority
from anchorwatch.core.session.wakes import Due, NotBefore, Windows, due

WINDOWS = Windows(2_000, 10_000)
NOW_MS = 1_000_000
HOUR_MS = 3_600_000
CHECK = "1970-01-01T01:00:00+00:00"


def state(at_ms: int, kind: InputKind = "message", priority: Priority = 0) -> SessionState:
    anchor = Anchor(workspace="default", session="s", agent="keeper@1", next_check_at=CHECK)
    return SessionState(anchor=anchor, pending=(Input(1, "in-1", kind, priority, at_ms),))


@pytest.mark.parametrize(("priority", "window_ms"), [(P0, WINDOWS.p0_ms), (P1, WINDOWS.p1_ms)])
def test_wake_waits_its_window_for_others(priority: Priority, window_ms: int) -> None:
    just_before = state(NOW_MS - window_ms + 1, priority=priority)
    assert due(just_before, NOW_MS, WINDOWS) == NotBefore(NOW_MS + 1, check=False)
    assert due(state(NOW_MS - window_ms, priority=priority), NOW_MS, WINDOWS) == Due()


@pytest.mark.parametrize("kind", ["trigger", "tick"])
def test_trigger_and_a_tick_wait_for_nothing(kind: InputKind) -> None:
    assert due(state(NOW_MS, kind, 1), NOW_MS, WINDOWS) == Due()


@pytest.mark.parametrize(
    ("kind", "priority"), [("message", P0), ("event", P1), ("trigger", P0), ("tick", P1)]
)
def test_wake_from_a_clock_that_ran_ahead_is_not_delayed(kind: InputKind, priority: Priority) -> None:
    assert due(state(NOW_MS + HOUR_MS, kind, priority), NOW_MS, WINDOWS) == Due()


def test_p2_wake_waits_for_the_next_check() -> None:
    assert due(state(NOW_MS - HOUR_MS, priority=2), NOW_MS, WINDOWS) == NotBefore(HOUR_MS, check=False)


def ticked(input_id: str, *others: Input, run_id: int = 0, at_ms: int = NOW_MS) -> SessionState:
    tick = Input(50, input_id, "tick", 1, at_ms, type=input_id.partition("-")[0])
    anchor = Anchor(workspace="default", session="s", agent="keeper@1", next_check_at=CHECK, run_id=run_id)
    return SessionState(anchor=anchor, pending=(*others, tick))


def test_tick_whose_work_a_turn_has_done_waits_for_the_next() -> None:
    a_window = NotBefore(NOW_MS + WINDOWS.p1_ms, check=False)
    assert due(ticked("tick-7"), NOW_MS, WINDOWS) == a_window
    assert due(ticked("check-4-1000000", run_id=4), NOW_MS, WINDOWS) == a_window
    assert due(ticked("tick-7", at_ms=NOW_MS + HOUR_MS), NOW_MS, WINDOWS) == Due(), "a clock was set back"
    waits = Input(7, "ev-7", "event", 1, NOW_MS)
    assert due(ticked("tick-7", waits), NOW_MS, WINDOWS) == Due()
    assert due(ticked("check-4-1000000", run_id=3), NOW_MS, WINDOWS) == Due()


def test_earliest_wake_of_a_burst_counts_though_clocks_differ() -> None:
    instants = [NOW_MS + 300, NOW_MS - 200, NOW_MS + 900]
    pending = tuple(Input(n, f"ev-{n}", "event", 1, at_ms) for n, at_ms in enumerate(instants, 1))
    anchor = Anchor(workspace="default", session="s", agent="keeper@1", next_check_at=CHECK)
    assert due(SessionState(anchor=anchor, pending=pending), NOW_MS, WINDOWS) == NotBefore(
        NOW_MS - 200 + WINDOWS.p1_ms, check=False
    )
    ahead = Input(9, "ev-9", "event", 1, NOW_MS + HOUR_MS)
    assert due(SessionState(anchor=anchor, pending=(*pending, ahead)), NOW_MS, WINDOWS) == Due()
