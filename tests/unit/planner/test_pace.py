"""When a session is checked next: after now, within its heartbeat, and later the longer it is stuck."""

from __future__ import annotations

from dataclasses import replace

from anchorwatch.core.anchor import Anchor, RunOutcome
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.state import Call, Step, Turn
from anchorwatch.core.times import iso
from anchorwatch_planner.decision import AT_ONCE_MS, RETRY_S, next_check_ms
from hypothesis import given, settings
from hypothesis import strategies as st

NOW_MS = 1_000_000_000
ANCHOR = Anchor(workspace="w", session="s", agent="a@1")
OUTCOMES: st.SearchStrategy[RunOutcome] = st.sampled_from(
    ["success", "no_action", "unresolved", "failed", "cancelled", "over_budget"]
)
ASKED = st.none() | st.integers(NOW_MS - 9_000, NOW_MS + 900_000) | st.sampled_from(["soon", 1.5])


def state(stuck: int, standing_ms: int | None, asked: object) -> SessionState:
    data = {} if asked is None else {"next_check_at_ms": asked}
    call = Call(1, "check_again", {}, state="succeeded", data=data)
    check = None if standing_ms is None else iso(standing_ms)
    anchor = replace(ANCHOR, runs_without_progress=stuck, next_check_at=check)
    return SessionState(anchor=anchor, turn=Turn(1, "t", 0, 1, 1, (), (Step(1, "", (call,)),)))


@settings(max_examples=400, deadline=None)
@given(
    OUTCOMES,
    st.integers(1, 3_600),
    st.integers(0, 40),
    st.none() | st.integers(NOW_MS - 900_000, NOW_MS + 900_000),
    ASKED,
)
def test_next_check_is_in_the_future_and_within_the_heartbeat(
    outcome: RunOutcome, heartbeat_s: int, stuck: int, standing_ms: int | None, asked: object
) -> None:
    at_ms = next_check_ms(state(stuck, standing_ms, asked), outcome, heartbeat_s, NOW_MS)
    assert NOW_MS < at_ms <= NOW_MS + heartbeat_s * 1000
    if isinstance(asked, int):
        assert at_ms <= max(asked, NOW_MS + AT_ONCE_MS)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 30), st.integers(1, 3_600))
def test_stuck_session_is_checked_less_and_less_often(stuck: int, heartbeat_s: int) -> None:
    waits = [
        next_check_ms(state(count, None, None), "failed", heartbeat_s, NOW_MS) - NOW_MS
        for count in (0, stuck, stuck + 1)
    ]
    assert waits == sorted(waits)
    assert waits[0] == min(RETRY_S, heartbeat_s) * 1000


def test_last_requested_check_counts_and_overdue_one_runs_now() -> None:
    calls = tuple(
        Call(n, "check_again", {}, state="succeeded", data={"next_check_at_ms": NOW_MS + in_ms})
        for n, in_ms in enumerate((60_000, 120_000), 1)
    )
    twice = SessionState(anchor=ANCHOR, turn=Turn(1, "t", 0, 1, 1, (), (Step(1, "", calls),)))
    assert next_check_ms(twice, "success", 300, NOW_MS) == NOW_MS + 120_000
    assert next_check_ms(twice, "success", 300, NOW_MS + 200_000) == NOW_MS + 200_000 + AT_ONCE_MS
