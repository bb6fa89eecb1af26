"""When a session is due, over any inputs: what waits is due in the end, and each input has one disposition."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from anchorwatch.core.anchor import Anchor, Status
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.state import Input
from anchorwatch.core.session.wakes import (
    LONG_AGO_MS,
    Due,
    Never,
    NotBefore,
    Windows,
    dispositions,
    due,
    shown,
)
from anchorwatch.core.times import iso
from hypothesis import given, settings
from hypothesis import strategies as st

WINDOWS = Windows(2_000, 10_000)
TIMES = st.integers(0, 40_000)
ANCHOR = Anchor(workspace="w", session="s", agent="a@1")


@st.composite
def inputs(draw: st.DrawFn) -> tuple[Input, ...]:
    count = draw(st.integers(0, 6))
    return tuple(
        Input(
            sequence,
            f"i{sequence}",
            draw(st.sampled_from(["event", "message", "trigger", "tick"])),
            draw(st.sampled_from([0, 1, 2])),
            draw(TIMES),
            source=draw(st.sampled_from(["", "fleet"])),
            expires_at_ms=draw(st.none() | TIMES),
        )
        for sequence in range(1, count + 1)
    )


def idle(pending: tuple[Input, ...], check_ms: int | None) -> SessionState:
    check = None if check_ms is None else iso(check_ms)
    return SessionState(anchor=replace(ANCHOR, next_check_at=check), pending=pending)


@settings(max_examples=400, deadline=None)
@given(inputs(), st.none() | TIMES, TIMES)
def test_repeated_checks_lead_to_a_turn_or_the_scheduled_check(
    pending: tuple[Input, ...], check_ms: int | None, now_ms: int
) -> None:
    state = idle(pending, check_ms)
    # A wake may be out of date before its window ends; then it waits for the check, and the next one counts.
    for _ in range(2 * len(pending) + 2):
        found = due(state, now_ms, WINDOWS)
        match found:
            case NotBefore(at_ms=at_ms, check=False):
                assert at_ms > now_ms
                now_ms = at_ms
            case NotBefore(at_ms=at_ms):
                assert at_ms == (LONG_AGO_MS if check_ms is None else check_ms)
                return
            case Due():
                assert pending
                return
            case Never():
                raise AssertionError("an idle session is never left alone")
    raise AssertionError(f"still waiting at {now_ms}")


@settings(max_examples=300, deadline=None)
@given(inputs(), st.none() | TIMES, st.sampled_from(["active", "paused", "quarantined", "deleted"]))
def test_only_an_idle_session_is_due(
    pending: tuple[Input, ...], check_ms: int | None, status: Status
) -> None:
    state = idle(pending, check_ms)
    assert state.anchor is not None
    held = SessionState(anchor=replace(state.anchor, status=status), pending=pending)
    assert due(held, 10**9, WINDOWS) == Never()


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(inputs(), TIMES)
def test_each_input_has_one_disposition_and_of_a_family_one_ran(
    taken: tuple[Input, ...], started_ms: int
) -> None:
    found = dispositions(taken, started_ms)
    assert [each for each, _ in found] == list(taken)
    ran = Counter(each.family for each, disposition in found if disposition == "ran")
    joined = {each.family for each, disposition in found if disposition == "coalesced"}
    assert set(ran.values()) <= {1}
    assert joined <= set(ran)
    for each, disposition in found:
        late = each.expires_at_ms is not None and each.expires_at_ms < started_ms
        assert (disposition == "expired") == late


@settings(max_examples=300, deadline=None)
@given(inputs(), st.integers(0, 7))
def test_shown_inputs_prefer_messages_to_events(taken: tuple[Input, ...], count: int) -> None:
    chosen = shown(taken, count)
    assert len(chosen) == min(count, len(taken))
    assert list(chosen) == sorted(chosen, key=lambda each: each.sequence)
    left = [each for each in taken if each not in chosen]
    if any(each.kind == "message" for each in left):
        assert all(each.kind == "message" for each in chosen)
