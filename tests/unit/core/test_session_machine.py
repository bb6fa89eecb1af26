"""The session machine: what each change of the anchor sets, and that a fold is a fold."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
from anchorwatch.core.anchor import RunOutcome
from anchorwatch.core.errors import Fenced, NotFound, Refused, SessionDeleted
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session import SessionState, apply
from anchorwatch.core.session.apply import Recorded, replay
from anchorwatch.core.session.commands import (
    Acquire,
    CommitStep,
    Control,
    Create,
    Direct,
    EndTurn,
    PlannedCall,
    TakeOver,
)
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.events import InputAccepted, OutcomeRecorded, StepHead
from anchorwatch.core.session.state import Input

REF = SessionRef("default", "fleet")
ME, OTHER = "planner-1:aa", "planner-2:bb"


class Story:
    """A session's journal in the making: sequences and digests are given as the server and the codec would."""

    def __init__(self) -> None:
        self.state = SessionState()
        self.records: list[Recorded] = []
        self.sequence = 0

    def record(self, event: object) -> Story:
        self.sequence += 1
        recorded = Recorded(self.sequence, event, f"d{self.sequence}")  # type: ignore[arg-type]
        self.records.append(recorded)
        self.state = apply(self.state, recorded).reading_through(self.sequence)
        return self

    def do(self, command: object) -> Story:
        for event in decide(self.state, command):  # type: ignore[arg-type]
            self.record(event)
        return self

    def input(self, kind: str = "event", *, priority: int = 1, at_ms: int = 0) -> Story:
        sequence = self.sequence + 1
        given = Input(sequence, f"i{sequence}", kind, priority, at_ms, source="fleet", type="instance.dead")  # type: ignore[arg-type]
        return self.record(InputAccepted(given))

    def outcome(self, call: CallId, state: str = "succeeded", *, durable: bool = True) -> Story:
        return self.record(OutcomeRecorded(call, state, "done", {}, durable))  # type: ignore[arg-type]


def created() -> Story:
    return Story().do(Create(REF, "keeper@1", ("500 per hour",), ("never stop the last",), 1_000, "person"))


def acquire(story: Story, who: str = ME, woken_by: int = 2) -> Acquire:
    run = story.state.anchor.run_id + 1 if story.state.anchor else 1
    return Acquire(f"turn_{run}", "keeper@1", who, woken_by, story.sequence, 2_000)


def step(number: int, *tools: str, who: str = ME) -> CommitStep:
    calls = tuple(PlannedCall(n, tool, {}, "", "default", "fleet") for n, tool in enumerate(tools, 1))
    return CommitStep(who, StepHead(number, "thinking", None, None, calls=len(calls)), calls)


def end(who: str = ME, outcome: RunOutcome = "success") -> EndTurn:
    head = StepHead(9, "done", None, None)
    return EndTurn(who, outcome, "because", {"queued": True}, 9_000, head, None, 3_000)


def settled(story: Story) -> bool:
    return story.state.turn is not None and story.state.turn.settled


def test_turn_runs_from_wake_to_rest() -> None:
    story = created().input()
    story.do(acquire(story))
    anchor = story.state.anchor
    assert anchor is not None
    assert (anchor.status, anchor.run_id, anchor.generation, anchor.execution_id) == ("active", 1, 1, ME)
    assert anchor.turn is not None
    assert (anchor.turn.inputs_through, anchor.turn.woken_by) == (2, 2)
    assert story.state.pending == ()

    story.do(step(1, "launch", "look"))
    assert not settled(story)
    story.outcome(CallId(1, 1, 1)).outcome(CallId(1, 1, 2), "failed")
    assert settled(story)

    story.do(end())
    anchor = story.state.anchor
    assert anchor is not None
    assert (anchor.status, anchor.fence.run, anchor.run_count, anchor.last_run_id) == ("idle", 2, 1, 1)
    assert (anchor.last_run_outcome, anchor.inputs_through, anchor.execution_id) == ("success", 2, None)
    assert story.state.turn is None
    assert [past.run_id for past in story.state.history] == [1]


def test_message_of_a_person_stays_in_conversation_in_any_burst() -> None:
    story = created().input().input("message", priority=0)
    for _ in range(50):
        story.input()
    story.do(acquire(story)).do(end())
    past = story.state.history[-1]
    assert [each.sequence for each in past.inputs] == [3, *range(35, 54)]
    assert past.skipped == 52 - len(past.inputs)


def test_input_between_the_read_and_the_acquire_stays_pending() -> None:
    """The acquire pins what its planner had read; an input that slipped in before it belongs to the next turn."""
    story = created().input()
    command = acquire(story)
    story.input()
    story.do(command)
    assert [each.sequence for each in story.state.pending] == [3]
    story.do(end())
    assert [each.sequence for each in story.state.pending] == [3]


def test_own_write_does_not_claim_to_have_read_earlier_writes() -> None:
    state = created().state
    [event] = decide(state, Acquire("turn_1", "keeper@1", ME, 1, 1, 2_000))
    mine = apply(state, Recorded(5, event, "d5"))
    assert mine.head == 5
    assert mine.read_through == state.read_through, "inputs at 2 to 4 are still to be read"


def test_takeover_keeps_the_run_and_withdraws_ephemeral_results() -> None:
    story = created().input()
    story.do(acquire(story)).do(step(1, "look", "launch"))
    story.outcome(CallId(1, 1, 1), durable=False).outcome(CallId(1, 1, 2))
    story.do(TakeOver(OTHER, 7, 2_500, "its planner is gone"))
    anchor, turn = story.state.anchor, story.state.turn
    assert anchor is not None
    assert turn is not None
    assert (anchor.run_id, anchor.generation, anchor.fence.run, anchor.execution_id) == (1, 2, 0, OTHER)
    assert [call.state for call in turn.steps[0].calls] == ["withdrawn", "succeeded"]
    with pytest.raises(Fenced):
        decide(story.state, end(ME))
    assert decide(story.state, end(OTHER))


@pytest.mark.parametrize("ended", [False, True])
def test_ephemeral_outcome_read_after_the_takeover_is_withdrawn(*, ended: bool) -> None:
    """An outcome may be stored between a planner's read and its takeover, and be read only afterwards."""
    story = created().input()
    story.do(acquire(story)).do(step(1, "look"))
    late = Recorded(
        story.state.head + 1, OutcomeRecorded(CallId(1, 1, 1), "succeeded", "done", {}, durable=False)
    )
    (over,) = decide(story.state, TakeOver(OTHER, 7, 2_500, "its planner is gone"))
    taken = Recorded(late.sequence + 1, over, "d", story.state.head_digest)
    orders = [[late, taken], [taken, late]]
    if ended:
        known = replay(story.state, [late, taken])
        (cancel,) = decide(known, Control(Kind.CANCELLED, "ann", 3_000))
        gone = Recorded(taken.sequence + 1, cancel, "e", "d")
        orders = [[late, taken, gone], [taken, gone, late]]
    in_order, read_late = (
        functools.reduce(apply, records, story.state)._replace(read_through=0) for records in orders
    )
    assert read_late == in_order
    steps = in_order.history[-1].steps if in_order.turn is None else in_order.turn.steps
    assert [call.state for call in steps[0].calls] == ["withdrawn"]


def test_planner_without_the_session_commits_nothing() -> None:
    story = created().input()
    story.do(acquire(story))
    with pytest.raises(Fenced):
        decide(story.state, step(1, "launch", who=OTHER))
    with pytest.raises(Fenced):
        decide(story.state, end(OTHER))


def test_step_is_decided_once() -> None:
    story = created().input()
    story.do(acquire(story))
    first = step(1, "launch")
    story.do(first)
    with pytest.raises(Refused):
        decide(story.state, step(2, "launch"))
    story.outcome(CallId(1, 1, 1))
    with pytest.raises(Fenced):
        decide(story.state, first)


def test_turn_does_not_end_while_a_command_has_no_outcome() -> None:
    story = created().input()
    story.do(acquire(story)).do(step(1, "launch"))
    with pytest.raises(Refused):
        decide(story.state, end())


def test_cancel_raises_the_fence_and_consumes_the_inputs() -> None:
    story = created().input()
    story.do(acquire(story)).do(step(1, "launch"))
    story.do(Control(Kind.CANCELLED, "person", 2_600, "stop it", "turn_1"))
    anchor = story.state.anchor
    assert anchor is not None
    assert (anchor.status, anchor.fence.run, anchor.generation) == ("idle", 2, 2)
    assert (anchor.last_run_outcome, anchor.inputs_through, anchor.run_count) == ("cancelled", 2, 1)
    assert story.state.pending == ()
    with pytest.raises(Fenced):
        decide(story.state, end())


def test_late_cancel_changes_nothing() -> None:
    story = created().input()
    story.do(acquire(story)).do(end())
    with pytest.raises(Refused, match="not running"):
        decide(story.state, Control(Kind.CANCELLED, "person", 4_000, turn_id="turn_1"))


def test_pause_holds_the_turn_and_resume_continues_it() -> None:
    story = created().input()
    story.do(acquire(story)).do(Control(Kind.PAUSED, "person", 2_200))
    with pytest.raises(Refused, match="paused"):
        decide(story.state, step(1, "launch"))
    story.do(Control(Kind.RESUMED, "person", 2_300))
    assert story.state.anchor is not None
    assert (story.state.anchor.status, story.state.anchor.generation) == ("active", 1)
    story.do(step(1, "launch"))


def test_directives_change_neither_run_nor_generation() -> None:
    story = created().input()
    story.do(acquire(story))
    before = story.state.anchor
    story.do(Direct("person", 2_100, "objectives", "set", ("900 per hour",)))
    after = story.state.anchor
    assert before is not None
    assert after is not None
    assert after.objectives == ("900 per hour",)
    assert (after.run_id, after.generation, after.fence, after.turn) == (
        before.run_id,
        before.generation,
        before.fence,
        before.turn,
    )


def test_deleted_session_stays_deleted() -> None:
    story = created()
    story.do(Control(Kind.DELETED, "person", 2_000))
    with pytest.raises(SessionDeleted):
        decide(story.state, acquire(story))
    with pytest.raises(SessionDeleted):
        decide(story.state, Create(REF, "keeper@1", (), (), 5_000, "person"))


def test_turn_requires_a_session() -> None:
    with pytest.raises(NotFound):
        decide(SessionState(), acquire(Story()))


@pytest.mark.parametrize(
    ("outcome", "before", "after"),
    [("success", 3, 0), ("no_action", 3, 0), ("unresolved", 3, 4), ("failed", 0, 1), ("over_budget", 1, 2)],
)
def test_runs_without_progress_are_counted(outcome: RunOutcome, before: int, after: int) -> None:
    story = created().input()
    anchor = story.state.anchor
    assert anchor is not None
    before_it = replace(anchor, runs_without_progress=before)
    story.state = story.state._replace(anchor=before_it)
    story.do(acquire(story)).do(end(outcome=outcome))
    assert story.state.anchor is not None
    assert story.state.anchor.runs_without_progress == after


def test_outcome_settles_a_call_once_and_a_foreign_one_nothing() -> None:
    story = created().input()
    story.do(acquire(story)).do(step(1, "launch"))
    story.outcome(CallId(7, 1, 1)).outcome(CallId(1, 1, 1), "succeeded").outcome(CallId(1, 1, 1), "failed")
    assert story.state.turn is not None
    assert story.state.turn.steps[0].calls[0].state == "succeeded"


def test_critical_label_keeps_text_word_for_word_at_any_age() -> None:
    story = created()
    said = "Good evening.\n  CRITICAL: never more than 4 instances \nand that is all\nnot CRITICAL: this"
    story.record(InputAccepted(Input(2, "m", "message", 0, 0, said)))
    story.record(InputAccepted(Input(3, "e", "event", 0, 0, "CRITICAL: an event is no order")))
    for _ in range(50):
        story.do(acquire(story)).do(end()).input()
    assert len(story.state.history) < 50, "the turn that took it is out of sight"
    assert tuple(each.text for each in story.state.critical) == ("CRITICAL: never more than 4 instances",)
