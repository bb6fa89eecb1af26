"""The wake ledger: one disposition for each wake, whatever the history."""

from __future__ import annotations

from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind
from anchorwatch.core.session.apply import Recorded
from anchorwatch.core.session.commands import ClearWakes, CommitStep, Control, RefuseInputs, Reset, Steer
from anchorwatch.core.session.events import AnchorChanged, InputAccepted, OutcomeRecorded, StepHead
from anchorwatch.core.session.ledger import Ledger, read_ledger
from anchorwatch.core.session.pacing import excess
from anchorwatch.core.session.state import Input
from anchorwatch.core.session.transitions import CONTROLS
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.test_session_machine import Story, acquire, created, end, step
from tests.unit.core.test_session_properties import MOVES, play


def ledger(story: Story) -> Ledger:
    return read_ledger(story.records)


def became(story: Story, sequence: int) -> tuple[str, int]:
    wake = ledger(story).wakes[sequence]
    return wake.disposition, wake.run


def test_one_turn_takes_stale_wakes_burst_and_heartbeat_once() -> None:
    story = created()
    for _ in range(20):
        given = Input(story.sequence + 1, "x", "event", 1, 0, source="old", type="stale", expires_at_ms=1)
        story.record(InputAccepted(given))
    stale = story.sequence
    for _ in range(30):
        story.input()
    story.record(InputAccepted(Input(story.sequence + 1, "tick", "tick", 1, 0)))
    story.do(acquire(story)).do(end())
    found = ledger(story)
    assert len(found.of("expired")) == 20
    assert [each.sequence for each in found.of("ran") if each.kind == "input"] == [
        stale + 1,
        story.sequence - 2,
    ]
    assert len(found.of("coalesced")) == 29
    assert found.of("pending") == ()
    assert {each.run for each in found.wakes.values() if each.kind == "input"} == {1}


def test_outcome_that_settled_its_step_ran() -> None:
    story = created().input()
    story.do(acquire(story)).do(step(1, "launch", "launch"))
    story.outcome(CallId(1, 1, 2)).outcome(CallId(1, 1, 1))
    assert became(story, story.sequence) == ("pending", 0)
    first, last = story.sequence - 1, story.sequence
    story.do(end())
    assert (became(story, first), became(story, last)) == (("coalesced", 1), ("ran", 1))


def test_outcome_of_a_finished_turn_is_superseded() -> None:
    story = created().input()
    story.do(acquire(story)).do(step(1, "launch", "launch")).outcome(CallId(1, 1, 1))
    before = story.sequence
    story.do(Control(Kind.CANCELLED, "ada", 1)).outcome(CallId(1, 1, 2))
    assert became(story, before) == ("superseded", 1)
    assert became(story, story.sequence) == ("superseded", 1)


def test_inputs_disposed_of_are_superseded_and_later_ones_wait() -> None:
    for order in (
        lambda through: ClearWakes("ada", 1, through),
        lambda through: Reset("ada", 1, through),
    ):
        story = created().input()
        first = story.sequence
        story.input().do(order(first))
        assert became(story, first) == ("superseded", 0)
        assert became(story, first + 1) == ("pending", 0)


def test_joining_input_ran_in_its_turn_and_an_order_when_applied() -> None:
    story = created().input()
    story.do(acquire(story))
    said = Input(story.sequence + 1, "m", "message", 0, 0, "hello")
    story.record(InputAccepted(said)).do(Steer("ada", 1, "turn_1", "look"))
    steer = story.sequence
    head = StepHead(1, "", None, None, joined=(said.sequence, steer))
    story.do(CommitStep("planner-1:aa", head, ()))
    assert became(story, said.sequence) == ("ran", 1)
    assert became(story, steer) == ("ran", 1)


def test_deleted_session_refuses_waiting_and_new_inputs() -> None:
    story = created().input()
    waiting = story.sequence
    story.do(Control(Kind.DELETED, "ada", 1)).input()
    assert became(story, waiting) == ("refused", 0)
    assert became(story, story.sequence) == ("refused", 0)
    assert story.state.pending == (), "the session machine agrees with the ledger"


def test_held_session_reports_refused_inputs_in_the_next_turn() -> None:
    story = created()
    for _ in range(9):
        story.input()
    first = story.sequence - 8
    story.do(RefuseInputs(excess(story.state, 4), 1, "planner-1:aa", "held"))
    assert became(story, first) == ("refused", 0)
    assert [each.sequence for each in ledger(story).of("pending")] == [first + 7, first + 8]
    assert story.state.anchor is not None
    assert (story.state.refused, story.state.anchor.inputs_refused) == (7, 7)
    story.do(acquire(story))
    assert story.state.turn is not None
    assert (story.state.turn.refused, story.state.refused) == (7, 0)
    assert became(story, first + 7) == ("ran", 1)


def accepted(records: list[Recorded]) -> set[int]:
    return {
        each.sequence
        for each in records
        if isinstance(each.event, InputAccepted | OutcomeRecorded)
        or (isinstance(each.event, AnchorChanged) and each.event.kind in CONTROLS)
    }


@settings(max_examples=300, deadline=None)
@given(st.lists(MOVES, max_size=60))
def test_dispositions_and_waiting_inputs_are_all_accepted_inputs(
    moves: list[str],
) -> None:
    story = play(moves)
    found = ledger(story)
    assert found.twice == ()
    assert set(found.wakes) == accepted(story.records)
    waiting = [each.sequence for each in found.of("pending") if each.kind == "input"]
    assert waiting == [each.sequence for each in story.state.pending]
