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
def test_a_wake_waits_its_window_for_others(priority: Priority, window_ms: int) -> None:
    just_before = state(NOW_MS - window_ms + 1, priority=priority)
    assert due(just_before, NOW_MS, WINDOWS) == NotBefore(NOW_MS + 1, check=False)
    assert due(state(NOW_MS - window_ms, priority=priority), NOW_MS, WINDOWS) == Due()


@pytest.mark.parametrize("kind", ["trigger", "tick"])
def test_a_trigger_and_a_tick_wait_for_nothing(kind: InputKind) -> None:
    assert due(state(NOW_MS, kind, 1), NOW_MS, WINDOWS) == Due()


@pytest.mark.parametrize(
    ("kind", "priority"), [("message", P0), ("event", P1), ("trigger", P0), ("tick", P1)]
)
def test_a_wake_from_a_clock_that_ran_ahead_is_not_held_up(kind: InputKind, priority: Priority) -> None:
    assert due(state(NOW_MS + HOUR_MS, kind, priority), NOW_MS, WINDOWS) == Due()


def test_a_p2_wake_waits_for_the_next_check() -> None:
    assert due(state(NOW_MS - HOUR_MS, priority=2), NOW_MS, WINDOWS) == NotBefore(HOUR_MS, check=False)
