"""What people order: what each order sets in the anchor, and what it leaves alone."""

from __future__ import annotations

import pytest
from anchorwatch.codec import pack, unpack
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import (
    BadInput,
    ChangedSince,
    Fenced,
    NotFound,
    Refused,
    SessionDeleted,
    TurnNotActive,
)
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind
from anchorwatch.core.session.commands import (
    ClearWakes,
    CommitStep,
    Control,
    Direct,
    EndTurn,
    Relabel,
    Reset,
    Steer,
    UndoReset,
)
from anchorwatch.core.session.conversation import HISTORY_TURNS_MAX
from anchorwatch.core.session.critical import Labelled
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.events import AnchorChanged, InputAccepted, StepHead
from anchorwatch.core.session.state import Input
from anchorwatch.journal.snapshots import read_state, state_body

from tests.unit.core.test_session_machine import ME, Story, acquire, created, end, step


def anchor(story: Story) -> Anchor:
    assert story.state.anchor is not None
    return story.state.anchor


def running(*tools: str) -> Story:
    story = created().input()
    story.do(acquire(story))
    return story.do(step(1, *tools)) if tools else story


def reset(story: Story, through: int | None = None, head: int = 0) -> Reset:
    return Reset("ada", 5_000, story.sequence if through is None else through, head, "it went in circles")


def runs(story: Story) -> list[int]:
    return [past.run_id for past in story.state.history]


def turns(story: Story, count: int) -> Story:
    for _ in range(count):
        story.input()
        story.do(acquire(story)).do(end())
    return story


def ending(number: int, *joined: int) -> EndTurn:
    return EndTurn(
        ME, "success", "", {}, 9_000, StepHead(number, "done", None, None, joined=joined), None, 3_000
    )


def said(story: Story, text: str = "what about it?") -> int:
    story.record(InputAccepted(Input(story.sequence + 1, "m", "message", 0, 0, text)))
    return story.sequence


# --- reset


def test_reset_archives_the_conversation_and_nothing_else() -> None:
    story = turns(created(), 3)
    story.record(InputAccepted(Input(story.sequence + 1, "m", "message", 0, 0, "CRITICAL: never four")))
    story.do(acquire(story)).do(end())
    before = anchor(story)
    story.do(reset(story))
    after = anchor(story)
    assert runs(story) == []
    assert tuple(each.text for each in story.state.critical) == ("CRITICAL: never four",)
    kept = ("run_id", "run_count", "objectives", "constraints", "facts", "last_run_outcome")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert (after.reset_count, after.generation) == (1, before.generation + 1)
    assert (after.status, after.fence.run) == ("idle", before.run_id + 1)


def test_reset_in_the_middle_of_a_turn_ends_it_by_the_fence() -> None:
    story = running("launch")
    story.do(reset(story))
    after = anchor(story)
    assert (after.status, after.turn, after.fence.run, after.run_id) == ("idle", None, 2, 1)
    assert (after.last_run_outcome, after.run_count) == ("cancelled", 1)
    with pytest.raises(Fenced):
        decide(story.state, end())
    story.input().do(acquire(story))
    assert anchor(story).run_id == 2, "run ids go on"


def test_reset_disposes_of_inputs_as_shown_and_keeps_later_ones() -> None:
    story = created()
    for _ in range(20):
        story.input()
    through = story.sequence
    story.input()
    story.do(reset(story, through))
    assert [each.sequence for each in story.state.pending] == [through + 1]
    event = story.records[-1].event
    assert isinstance(event, AnchorChanged)
    assert event.more["superseded"]["count"] == 20
    assert anchor(story).inputs_through == through


def test_reset_never_disposes_of_inputs_its_author_has_not_read() -> None:
    story = created().input()
    event = decide(story.state, reset(story, through=1_000))[0]
    assert isinstance(event, AnchorChanged)
    assert event.anchor.inputs_through == story.state.read_through


def test_reset_that_was_shown_another_session_is_refused() -> None:
    story = turns(created(), 1)
    shown = reset(story, head=story.state.head)
    story.input()
    assert decide(story.state, shown), "an input that came meanwhile waits on, and does not matter"
    story.do(acquire(story))
    with pytest.raises(ChangedSince):
        decide(story.state, shown)


def test_paused_session_is_reset_and_stays_paused() -> None:
    story = running().do(Control(Kind.PAUSED, "ada", 3_000))
    story.do(reset(story))
    assert (anchor(story).status, anchor(story).turn) == ("paused", None)


def test_reset_archive_is_restored_before_later_messages() -> None:
    story = turns(created(), 3)
    history = story.state.history
    story.do(reset(story))
    turns(story, 2).do(UndoReset("ada", 6_000))
    assert runs(story) == [1, 2, 3, 4, 5]
    assert story.state.history[:3] == history
    assert anchor(story).reset_count == 1, "it happened"


def test_resets_are_undone_one_by_one_the_last_first() -> None:
    story = turns(created(), 2)
    story.do(reset(story))
    turns(story, 1).do(reset(story))
    story.do(UndoReset("ada", 6_000))
    assert runs(story) == [3]
    story.do(UndoReset("ada", 6_000))
    assert runs(story) == [1, 2, 3]
    with pytest.raises(Refused, match="no archived conversation"):
        decide(story.state, UndoReset("ada", 6_000))


def test_history_and_archives_share_the_bound_of_a_conversation() -> None:
    story = turns(created(), HISTORY_TURNS_MAX - 1)
    story.do(reset(story))
    turns(story, 3)
    assert sum(len(each.turns) for each in story.state.archives) == HISTORY_TURNS_MAX - 3
    story.do(UndoReset("ada", 6_000))
    assert len(runs(story)) == HISTORY_TURNS_MAX
    assert runs(story)[-1] == anchor(story).run_id


# --- wakes, pause, cancel, delete


def test_cleared_wakes_are_disposed_of_and_a_turn_keeps_its_own() -> None:
    story = running().input().input()
    through = story.sequence
    story.input().do(ClearWakes("ada", 3_000, through))
    assert [each.sequence for each in story.state.pending] == [through + 1]
    assert story.state.turn is not None
    assert len(story.state.turn.inputs) == 1
    story.do(end())
    assert anchor(story).inputs_through == through
    with pytest.raises(Refused, match="no inputs are pending"):
        decide(story.state, ClearWakes("ada", 3_000, through))


def test_order_without_a_change_is_refused_with_the_way_out() -> None:
    idle, paused = created(), created().do(Control(Kind.PAUSED, "ada", 1))
    for story, order, way_out in (
        (idle, Control(Kind.RESUMED, "ada", 2), "anchorwatch show fleet"),
        (paused, Control(Kind.PAUSED, "ada", 2), "anchorwatch resume fleet"),
        (idle, ClearWakes("ada", 2, 9), "anchorwatch wakes fleet"),
        (idle, Direct("ada", 2, "objectives", "add", ("500 per hour",)), "anchorwatch anchor fleet"),
    ):
        with pytest.raises(Refused) as caught:
            decide(story.state, order)
        assert way_out in caught.value.hint


def test_cancel_changes_only_the_turn_that_it_names() -> None:
    story = running()
    with pytest.raises(TurnNotActive):
        decide(story.state, Control(Kind.CANCELLED, "ada", 3_000, turn_id="turn_7"))
    story.do(Control(Kind.CANCELLED, "ada", 3_000, turn_id="turn_1"))
    with pytest.raises(TurnNotActive):
        decide(story.state, Control(Kind.CANCELLED, "ada", 3_000, turn_id="turn_1"))


def test_check_in_the_past_does_not_restart_the_cancelled_turn() -> None:
    story = running().do(Control(Kind.CANCELLED, "ada", 3_000, turn_id="turn_1", check_in_ms=60_000))
    assert anchor(story).next_check_at == "1970-01-01T00:01:03.000+00:00"


def test_cancelled_session_that_was_paused_stays_paused() -> None:
    story = running("launch").do(Control(Kind.PAUSED, "ada", 2_500))
    story.do(Control(Kind.CANCELLED, "ada", 3_000))
    assert (anchor(story).status, anchor(story).fence.run) == ("paused", 2)


def test_every_order_is_refused_once_the_session_is_deleted() -> None:
    story = running("launch").do(Control(Kind.DELETED, "ada", 3_000))
    assert (anchor(story).status, anchor(story).fence.run, anchor(story).next_check_at) == (
        "deleted",
        2,
        None,
    )
    for order in (reset(story), UndoReset("ada", 1), ClearWakes("ada", 1, 9), Control(Kind.PAUSED, "ada", 1)):
        with pytest.raises(SessionDeleted):
            decide(story.state, order)


# --- objectives and constraints


def test_objectives_and_constraints_are_edited_verbatim() -> None:
    story = created()
    story.do(Direct("ada", 1, "objectives", "add", ("be kind",)))
    assert anchor(story).objectives == ("500 per hour", "be kind")
    story.do(Direct("ada", 1, "objectives", "remove", ("500 per hour",)))
    story.do(Direct("ada", 1, "constraints", "set", ("a", "b", "a")))
    assert (anchor(story).objectives, anchor(story).constraints) == (("be kind",), ("a", "b"))
    with pytest.raises(NotFound):
        decide(story.state, Direct("ada", 1, "objectives", "remove", ("500",)))
    with pytest.raises(Refused, match="already"):
        decide(story.state, Direct("ada", 1, "objectives", "add", ("be kind",)))
    with pytest.raises(BadInput, match="limit"):
        decide(story.state, Direct("ada", 1, "objectives", "add", tuple(map(str, range(40)))))


# --- steering, and joining


def test_message_to_a_turn_must_reach_its_model_before_it_ends() -> None:
    story = running()
    steer = Steer("ada", 2_500, "turn_1", "CRITICAL: not that one", "c-1")
    story.do(steer)
    sequence = story.sequence
    assert tuple(each.text for each in story.state.critical) == ("CRITICAL: not that one",)
    for command in (ending(1), step(1, "launch"), CommitStep(ME, StepHead(1, "", None, None), ())):
        with pytest.raises(Fenced, match="sent a message"):
            decide(story.state, command)
    story.do(ending(1, sequence))
    last = story.state.history[-1].steps[-1]
    assert [each.text for each in last.joined] == ["CRITICAL: not that one"]


def test_late_steer_changes_nothing() -> None:
    story = running().do(end())
    with pytest.raises(TurnNotActive):
        decide(story.state, Steer("ada", 4_000, "turn_1", "stop"))


def test_message_to_a_turn_that_failed_is_shown_to_the_next() -> None:
    story = running().do(Steer("ada", 2_500, "turn_1", "look at the disk"))
    failed = EndTurn(ME, "failed", "no answer", {}, 9_000, None, None, 3_000)
    story.do(failed)
    assert [each.text for each in story.state.history[-1].inputs][-1] == "look at the disk"


def test_message_during_a_turn_may_join_it_and_is_consumed_once() -> None:
    story = running().input()
    event, message = story.sequence, said(story)
    head = StepHead(1, "", None, None, calls=1, joined=(message,))
    story.do(CommitStep(ME, head, step(1, "launch").calls))
    assert [each.sequence for each in story.state.pending] == [event]
    assert story.state.turn is not None
    assert story.state.turn.joined == (message,)
    story.outcome(CallId(1, 1, 1)).do(ending(2))
    assert (anchor(story).inputs_through, anchor(story).inputs_joined) == (2, (message,))
    story.do(acquire(story))
    assert [each.sequence for each in story.state.turn.inputs] == [event]
    story.do(end())
    assert anchor(story).inputs_joined == (), "the mark has passed it"


def test_input_joining_at_the_last_step_is_consumed_by_the_end() -> None:
    story = running()
    message = said(story, "CRITICAL: x")
    story.do(ending(1, message))
    assert story.state.pending == ()
    assert tuple(each.text for each in story.state.critical) == ("CRITICAL: x",)
    assert anchor(story).inputs_joined == (message,)


def test_input_that_joined_a_cancelled_turn_is_consumed_by_it() -> None:
    story = running()
    message = said(story)
    head = StepHead(1, "", None, None, calls=1, joined=(message,))
    story.do(CommitStep(ME, head, step(1, "launch").calls))
    story.do(Control(Kind.CANCELLED, "ada", 3_000, turn_id="turn_1"))
    assert story.state.pending == ()
    assert not story.state.takes(message)


def test_step_that_was_shown_disposed_inputs_is_decided_again() -> None:
    story = running()
    message = said(story)
    story.do(ClearWakes("ada", 3_000, message))
    with pytest.raises(Fenced, match="disposed"):
        decide(story.state, ending(1, message))


# --- labelled lines


def test_labelled_line_is_corrected_and_withdrawn_by_a_person() -> None:
    story = created()
    text = "CRITICAL: never four\nCRITICAL: be quick"
    story.record(InputAccepted(Input(story.sequence + 1, "m", "message", 0, 7, text, by="ada")))
    written = story.sequence
    story.do(acquire(story)).do(end())
    assert list(story.state.critical) == [
        Labelled("CRITICAL: never four", "ada", 7, written),
        Labelled("CRITICAL: be quick", "ada", 7, written),
    ]
    story.do(Relabel("bo", 9_000, "CRITICAL: never four", "CRITICAL: never five", "four is too few"))
    corrected = Labelled("CRITICAL: never five", "bo", 9_000, story.sequence)
    assert story.state.critical[0] == corrected
    story.do(Relabel("bo", 9_000, "CRITICAL: be quick"))
    assert list(story.state.critical) == [corrected]
    assert read_state(unpack(pack(state_body(story.state))), 9).critical == (corrected,)


@pytest.mark.parametrize(
    ("line", "text", "error"),
    [
        ("CRITICAL: unknown", "", NotFound),
        ("CRITICAL: a", "CRITICAL: b", Refused),
        ("CRITICAL: a", "no label", BadInput),
        ("CRITICAL: a", "CRITICAL: c\nCRITICAL: d", BadInput),
    ],
)
def test_invalid_change_of_a_labelled_line_is_refused(line: str, text: str, error: type[Exception]) -> None:
    story = created()
    said(story, "CRITICAL: a\nCRITICAL: b")
    story.do(acquire(story))
    with pytest.raises(error):
        decide(story.state, Relabel("ada", 9_000, line, text))
