"""Folding refuses nothing: whatever valid records stand in a journal, in whatever order and however often, there is a state."""

from __future__ import annotations

import pytest
from anchorwatch.core.anchor import Anchor, Fence, TurnMark
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind
from anchorwatch.core.session import SessionState, replay
from anchorwatch.core.session.apply import Recorded
from anchorwatch.core.session.events import (
    AnchorChanged,
    CommandDecided,
    Compacted,
    Event,
    InputAccepted,
    ModelRequested,
    OutcomeRecorded,
    SnapshotTaken,
    StepDecided,
    StepHead,
)
from anchorwatch.core.session.joining import joining
from anchorwatch.core.session.ledger import read_ledger
from anchorwatch.core.session.state import Input, Summary
from anchorwatch.core.session.transitions import CONTROLS
from anchorwatch.core.session.wakes import Windows, due
from hypothesis import given, settings
from hypothesis import strategies as st

SMALL = st.integers(0, 4)
SEQUENCES = st.integers(1, 60)
KINDS = sorted({*CONTROLS, Kind.ACQUIRED, Kind.TAKEN_OVER, Kind.TURN_ENDED})
CALLS = st.builds(CallId, SMALL, SMALL, SMALL)
HEADS = st.builds(
    StepHead,
    step=SMALL,
    text=st.just(""),
    observation=st.none(),
    prompt=st.none(),
    rejected=st.sampled_from([(), ((1, "launch", "", "{", "no JSON"),)]),
    joined=st.lists(SEQUENCES, max_size=2).map(tuple),
)
MARKS = st.builds(
    TurnMark,
    id=st.sampled_from(["t1", "t2"]),
    started_at=st.just("2026-03-17T18:56:43.163+00:00"),
    woken_by=SEQUENCES,
    inputs_through=SEQUENCES,
)
ANCHORS = st.builds(
    Anchor,
    workspace=st.just("default"),
    session=st.just("s"),
    agent=st.just("a@1"),
    status=st.sampled_from(["idle", "active", "paused", "quarantined", "deleted"]),
    run_id=SMALL,
    generation=SMALL,
    turn=st.none() | MARKS,
    fence=st.builds(Fence, run=SMALL),
    inputs_through=st.integers(0, 60),
    inputs_joined=st.lists(SEQUENCES, max_size=2).map(tuple),
    next_check_at=st.sampled_from([None, "2026-03-17T18:56:43.163+00:00"]),
)
INPUTS = st.builds(
    Input,
    sequence=SEQUENCES,
    input_id=st.sampled_from(["i1", "i2"]),
    kind=st.sampled_from(["event", "message", "trigger", "tick"]),
    priority=st.sampled_from([0, 1, 2]),
    at_ms=SMALL,
    text=st.sampled_from(["", "CRITICAL: never"]),
    expires_at_ms=st.none() | SMALL,
)
COMMANDS = st.builds(
    CommandDecided,
    call=CALLS,
    turn_id=st.just("t1"),
    generation=SMALL,
    agent=st.just("a@1"),
    pool=st.just("default"),
    tool=st.just("launch"),
    args=st.just({}),
    resource=st.sampled_from(["", "fleet"]),
    label=st.just(""),
    observation_digest=st.just(""),
    observation_at_ms=SMALL,
    head=st.none() | HEADS,
)
OUTCOMES = st.builds(
    OutcomeRecorded,
    call=CALLS,
    state=st.sampled_from(["succeeded", "failed", "refused", "unknown", "resolved"]),
    text=st.just(""),
    data=st.just({}),
    durable=st.booleans(),
)
CHANGES = st.builds(
    AnchorChanged, kind=st.sampled_from(KINDS), anchor=ANCHORS, at_ms=SMALL, head=st.none() | HEADS
)
USAGES = st.dictionaries(st.sampled_from(["prompt", "completion", "estimated", "reserved"]), SMALL)
EVENTS: st.SearchStrategy[Event] = (
    st.builds(InputAccepted, INPUTS)
    | CHANGES
    | COMMANDS
    | st.builds(StepDecided, run=SMALL, head=HEADS)
    | st.builds(Compacted, st.builds(Summary, SMALL, SMALL, st.just("")), st.just((9, 1)))
    | st.builds(
        ModelRequested,
        run=SMALL,
        model=st.just("m"),
        reserves=USAGES,
        usage=USAGES,
        at_ms=SMALL,
    )
    | OUTCOMES
)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.lists(EVENTS, max_size=25), st.data())
def test_any_records_in_any_order_and_again_fold_to_a_state(events: list[Event], data: st.DataObject) -> None:
    records = [Recorded(sequence, event, f"d{sequence}") for sequence, event in enumerate(events, 1)]
    state = replay(SessionState(), records)
    assert replay(SessionState(), records) == state
    shuffled = data.draw(st.permutations([*records, *records[:5]]))
    odd = replay(SessionState(), shuffled)
    for each in (state, odd):
        joining(each)
        due(each, 5, Windows(2, 10))
        resumed = replay(SessionState(), [Recorded(100, SnapshotTaken(each), "d100"), *records])
        assert resumed.snapshot_sequence == 100


@settings(max_examples=200, deadline=None)
@given(st.lists(EVENTS, max_size=25))
def test_replayed_records_change_nothing(events: list[Event]) -> None:
    records = [Recorded(sequence, event, f"d{sequence}") for sequence, event in enumerate(events, 1)]
    state = replay(SessionState(), records)
    planners = [each for each in records if not isinstance(each.event, InputAccepted | OutcomeRecorded)]
    assert replay(state, planners) == state


@settings(max_examples=200, deadline=None)
@given(st.lists(EVENTS, max_size=25))
def test_ledger_reads_any_records(events: list[Event]) -> None:
    records = [Recorded(sequence, event, f"d{sequence}") for sequence, event in enumerate(events, 1)]
    assert len(read_ledger(records).wakes) <= len(records)
