"""How often a session begins turns by itself: its limits, what they never hold, and what cannot wait any more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.pacing import HOUR_MS, NO_PROGRESS_RUNS, RETRY_MS, Rate, excess
from anchorwatch.core.session.state import Input, InputKind, Priority
from anchorwatch.core.session.wakes import Due, Never, NotBefore, Windows, due
from anchorwatch.core.times import iso
from hypothesis import given
from hypothesis import strategies as st

NOW_MS = 1_000_000_000
WINDOWS = Windows(2_000, 10_000)
IDLE = Anchor(workspace="w", session="s", agent="a@1")
EVENT: tuple[InputKind, Priority] = ("event", 1)
HASTY: list[tuple[InputKind, Priority]] = [("message", 0), ("trigger", 0), ("canary", 0), ("resolution", 0)]


def after(rate: Rate, starts_ms: list[int], **changes: Any) -> Anchor:
    anchor = replace(IDLE, **changes)
    for at_ms in starts_ms:
        anchor = replace(anchor, pace=rate.begun(anchor, at_ms))
    return anchor


def waiting(anchor: Anchor, *wakes: tuple[InputKind, Priority], at_ms: int = NOW_MS - 60_000) -> SessionState:
    pending = tuple(Input(n, f"i{n}", kind, prio, at_ms) for n, (kind, prio) in enumerate(wakes, 1))
    return SessionState(anchor=anchor, pending=pending)


def due_at(state: SessionState, now_ms: int, rate: Rate) -> Due | NotBefore | Never:
    assert state.anchor is not None
    return due(state, now_ms, WINDOWS, rate.held(state.anchor, now_ms))


def test_burst_of_turns_may_begin_and_then_one_for_each_token() -> None:
    rate = Rate(turns_per_hour=6, burst=3)
    at_ms = NOW_MS
    anchor = IDLE
    begun = []
    for _ in range(8):
        hold = rate.hold(anchor, at_ms)
        at_ms = hold.at_ms if hold else at_ms
        begun.append(at_ms - NOW_MS)
        anchor = replace(anchor, pace=rate.begun(anchor, at_ms))
    ten_minutes = HOUR_MS // 6
    assert begun == [0, 0, 0, *(n * ten_minutes for n in range(1, 6))]


@given(
    st.integers(1, 3_600),
    st.integers(1, 10),
    st.lists(st.integers(0, 2 * HOUR_MS), min_size=1, max_size=60),
)
def test_turns_in_any_span_stay_within_burst_and_earned_tokens(
    turns_per_hour: int, burst: int, asked_after_ms: list[int]
) -> None:
    rate = Rate(turns_per_hour=turns_per_hour, burst=burst)
    anchor, at_ms, begun = IDLE, NOW_MS, []
    for pause_ms in asked_after_ms:
        at_ms += pause_ms
        hold = rate.hold(anchor, at_ms)
        at_ms = hold.at_ms if hold else at_ms
        begun.append(at_ms)
        anchor = replace(anchor, pace=rate.begun(anchor, at_ms))
    for first in range(len(begun)):
        for last in range(first, len(begun)):
            earned = (begun[last] - begun[first]) * turns_per_hour / HOUR_MS
            assert last - first + 1 <= burst + earned + 0.001


def test_interval_passes_between_the_starts_of_two_turns() -> None:
    rate = Rate(min_interval_ms=30_000)
    anchor = after(rate, [NOW_MS])
    hold = rate.hold(anchor, NOW_MS + 29_999)
    assert hold is not None
    assert (hold.at_ms, hold.why) == (NOW_MS + 30_000, "min_interval")
    assert rate.hold(anchor, NOW_MS + 30_000) is None


def test_limit_delays_and_waiting_inputs_are_due_together() -> None:
    rate = Rate(min_interval_ms=30_000)
    state = waiting(after(rate, [NOW_MS]), ("event", 0), ("event", 1), ("tick", 1), ("message", 1))
    assert due_at(state, NOW_MS, rate) == NotBefore(NOW_MS + 30_000, check=False)
    assert due_at(state, NOW_MS + 30_000, rate) == Due()


@pytest.mark.parametrize(("kind", "priority"), HASTY)
def test_urgent_request_of_a_person_is_never_held(kind: InputKind, priority: Priority) -> None:
    rate = Rate(turns_per_hour=1, burst=1, min_interval_ms=HOUR_MS)
    stuck = {"runs_without_progress": 9, "last_run_timestamp": iso(NOW_MS)}
    anchor = after(rate, [NOW_MS], **stuck)
    assert due_at(waiting(anchor, ("event", 0), (kind, priority)), NOW_MS, rate) == Due()


def test_person_s_turns_cost_no_more_than_the_whole_bucket() -> None:
    rate = Rate(turns_per_hour=6, burst=3)
    hold = rate.hold(after(rate, [NOW_MS] * 50), NOW_MS)
    assert hold is not None
    assert (hold.at_ms, hold.why) == (NOW_MS + HOUR_MS // 6, "turns_per_hour")


def test_check_also_waits_for_the_limits_and_is_one_tick() -> None:
    rate = Rate(min_interval_ms=90_000)
    anchor = after(rate, [NOW_MS], next_check_at=iso(NOW_MS + 10_000))
    state = SessionState(anchor=anchor)
    assert due_at(state, NOW_MS + 20_000, rate) == NotBefore(NOW_MS + 90_000, check=True)
    assert due_at(state, NOW_MS + 90_000, rate) == NotBefore(NOW_MS + 10_000, check=True)


@pytest.mark.parametrize("rate", [Rate(turns_per_hour=6, burst=2), Rate(min_interval_ms=60_000)])
def test_clock_set_back_does_not_hold_a_session_for_ever(rate: Rate) -> None:
    anchor = after(rate, [NOW_MS] * 4, runs_without_progress=8, last_run_timestamp=iso(NOW_MS))
    assert rate.hold(anchor, NOW_MS - 24 * HOUR_MS) is None


def test_clocks_that_do_not_quite_agree_lift_no_limit() -> None:
    rate = Rate(turns_per_hour=60, burst=1, min_interval_ms=30_000)
    anchor = after(rate, [NOW_MS], runs_without_progress=3, last_run_timestamp=iso(NOW_MS))
    for behind_ms in (1, 100, 5_000):
        hold = rate.hold(anchor, NOW_MS - behind_ms)
        assert hold is not None
        assert hold.at_ms == NOW_MS + 60_000


def test_raised_limit_counts_at_once_and_a_removed_one_ends() -> None:
    strict = Rate(turns_per_hour=1, burst=1)
    anchor = after(strict, [NOW_MS])
    assert strict.hold(anchor, NOW_MS) is not None
    assert Rate(turns_per_hour=100, burst=1).hold(anchor, NOW_MS) is None
    assert Rate().hold(anchor, NOW_MS) is None
    assert Rate().begun(anchor, NOW_MS) is None


def test_session_without_progress_slows_down_to_its_heartbeat() -> None:
    rate = Rate(slowest_ms=300_000)
    waits = []
    for stuck in range(10):
        anchor = after(rate, [], runs_without_progress=stuck, last_run_timestamp=iso(NOW_MS))
        hold = rate.hold(anchor, NOW_MS)
        waits.append((hold.at_ms - NOW_MS) // 1000 if hold else 0)
        urgent = rate.hold(anchor, NOW_MS, urgent=True)
        assert (urgent.at_ms - NOW_MS if urgent else 0) == (RETRY_MS if stuck >= NO_PROGRESS_RUNS else 0)
    assert waits == [0, 0, 0, 60, 120, 240, 300, 300, 300, 300]


def test_excess_inputs_are_refused_oldest_first_up_to_a_message() -> None:
    state = waiting(IDLE, *[EVENT] * 11)
    assert excess(state, 11) == ()
    assert [each.sequence for each in excess(state, 10)] == [1, 2, 3, 4, 5, 6]
    spoken = waiting(IDLE, ("event", 1), ("tick", 1), ("message", 1), *[EVENT] * 11)
    assert [each.sequence for each in excess(spoken, 10)] == [1, 2]
    first = waiting(IDLE, ("message", 2), *[EVENT] * 11)
    assert excess(first, 10) == ()


def occurring(at: int, *wakes: tuple[InputKind, Priority]) -> SessionState:
    """With an occurrence of a schedule at that place, from 1."""
    state = waiting(IDLE, *wakes[: at - 1], ("tick", 1), *wakes[at - 1 :])
    pending = [replace(each, source="schedule") if each.sequence == at else each for each in state.pending]
    return state._replace(pending=tuple(pending))


def test_occurrence_of_a_schedule_is_kept_until_too_much_follows() -> None:
    spared = occurring(6, *[EVENT] * 10)
    assert [each.sequence for each in excess(spared, 10)] == [1, 2, 3, 4, 5]
    first = occurring(1, *[EVENT] * 5_000)
    assert [each.sequence for each in excess(first, 10)] == [*range(1, 4_997)]
    last = occurring(6, *[EVENT] * 10, ("message", 1))
    assert [each.sequence for each in excess(last, 10)] == [1, 2, 3, 4, 5], "not without need"
    behind_a_word = occurring(2, ("message", 1), *[EVENT] * 20)
    assert excess(behind_a_word, 10) == ()
