"""Properties of the session machine over random histories: replay never raises, a prefix and a resume give the whole,
run ids have no gap, and what is decided is applied."""

from __future__ import annotations

from anchorwatch.core.emergency import Emergency, Sighting
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind
from anchorwatch.core.session import SessionState, replay
from anchorwatch.core.session.commands import (
    ClearWakes,
    CommitStep,
    Control,
    Direct,
    EndEmergency,
    NoteEmergency,
    RefuseInputs,
    Reset,
    Steer,
    TakeOver,
    UndoReset,
)
from anchorwatch.core.session.events import InputAccepted, StepHead
from anchorwatch.core.session.pacing import excess
from anchorwatch.core.session.state import Input
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.test_session_machine import ME, OTHER, Story, acquire, created, end, step

MOVES = st.sampled_from(
    [
        "input",
        "acquire",
        "step1",
        "step3",
        "rejected",
        "outcome",
        "ephemeral",
        "takeover",
        "end",
        "cancel",
        "pause",
        "resume",
        "direct",
        "steer",
        "message",
        "join",
        "clear",
        "refuse",
        "reset",
        "undo",
        "emergency",
        "calm",
        "over",
    ]
)


def play(moves: list[str]) -> Story:
    story = created()
    for move in moves:
        try:
            _move(story, move)
        except AnchorWatchError:
            continue
    return story


def _move(story: Story, move: str) -> None:  # noqa: C901, PLR0912 - one arm for each move
    turn, anchor = story.state.turn, story.state.anchor
    holder = (anchor.execution_id if anchor else None) or ME
    number = len(turn.steps) + 1 if turn else 1
    match move:
        case "input":
            story.input()
        case "acquire":
            story.do(acquire(story))
        case "step1" | "step3":
            story.do(step(number, *(["launch"] * int(move[-1])), who=holder))
        case "refuse":
            story.do(RefuseInputs(excess(story.state, 2), 1, holder, "held"))
        case "rejected":
            story.do(step(number, who=holder))
        case "outcome" | "ephemeral":
            open_calls = [
                call
                for call in (turn.steps[-1].calls if turn and turn.steps else ())
                if call.state == "pending"
            ]
            if turn and open_calls:
                story.outcome(
                    CallId(turn.run_id, turn.steps[-1].number, open_calls[0].n), durable=move == "outcome"
                )
        case "takeover":
            story.do(TakeOver(OTHER if holder == ME else ME, story.sequence, 5, "gone"))
        case "end":
            story.do(end(holder))
        case "cancel":
            story.do(Control(Kind.CANCELLED, "person", 6))
        case "pause":
            story.do(Control(Kind.PAUSED, "person", 6))
        case "resume":
            story.do(Control(Kind.RESUMED, "person", 6))
        case "steer":
            story.do(Steer("person", 6, turn.turn_id if turn else "", "look"))
        case "message":
            story.record(InputAccepted(Input(story.sequence + 1, "m", "message", 0, 0, "hello")))
        case "join":
            waiting = (*story.state.pending, *(turn.steered if turn else ()))
            said = tuple(each.sequence for each in waiting if each.kind == "message")
            story.do(CommitStep(holder, StepHead(number, "", None, None, joined=said), ()))
        case "clear":
            story.do(ClearWakes("person", 6, story.sequence - 2))
        case "reset":
            story.do(Reset("person", 6, story.sequence - 2))
        case "undo":
            story.do(UndoReset("person", 6))
        case "emergency" | "calm":
            seen: Sighting = Emergency("dead", "all are dead") if move == "emergency" else False
            story.do(NoteEmergency(holder, seen, story.sequence, 6))
        case "over":
            story.do(EndEmergency("person", 6, "it is over"))
        case _:
            story.do(Direct("person", 6, "constraints", "set", ("never",)))


@settings(max_examples=300, deadline=None)
@given(st.lists(MOVES, max_size=40))
def test_replaying_the_records_gives_the_same_state(moves: list[str]) -> None:
    story = play(moves)
    replayed = replay(SessionState(), story.records).reading_through(story.sequence)
    assert replayed == story.state


@settings(max_examples=200, deadline=None)
@given(st.lists(MOVES, max_size=30), st.integers(min_value=0, max_value=60))
def test_overlapping_prefix_and_resume_give_the_whole(moves: list[str], cut: int) -> None:
    story = play(moves)
    cut = min(cut, len(story.records))
    prefix = replay(SessionState(), story.records[:cut])
    resumed = replay(prefix, story.records[max(0, cut - 3) :])
    assert resumed._replace(read_through=0) == story.state._replace(read_through=0)


@settings(max_examples=200, deadline=None)
@given(st.lists(MOVES, max_size=60))
def test_runs_have_no_gap_and_every_input_has_one_turn_or_waits(moves: list[str]) -> None:
    story = play(moves)
    anchor = story.state.anchor
    assert anchor is not None
    assert anchor.run_count == anchor.run_id - int(anchor.turn is not None)
    accepted = [record.event.input.sequence for record in story.records if hasattr(record.event, "input")]
    turn, waiting = story.state.turn, [each.sequence for each in story.state.pending]
    assert waiting == [sequence for sequence in accepted if story.state.takes(sequence)]
    assert not set(waiting) & {*anchor.inputs_joined, *(turn.joined if turn else ())}
    through = max(anchor.inputs_through, anchor.turn.inputs_through if anchor.turn else 0)
    assert all(sequence > through for sequence in waiting)
    assert all(sequence > anchor.inputs_through for sequence in anchor.inputs_joined)
    assert anchor.fence.run <= anchor.run_id + 1
