"""What the conversation shows of turns that are over, what resets took out of sight, and the bounds of both.

An archive is the part of the history that a reset hides: together they are bounded as the history alone would be, so
that what is brought back is what the conversation would show if there had been no reset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from anchorwatch.core.anchor import RunOutcome
from anchorwatch.core.memo import OfEach
from anchorwatch.core.session.outputs import stand_in
from anchorwatch.core.session.state import (
    Archive,
    Input,
    PastTurn,
    SeenObservation,
    SessionState,
    Step,
    Summary,
    Turn,
)
from anchorwatch.core.session.summary import after, from_records
from anchorwatch.core.session.wakes import shown, tally

HISTORY_TURNS_MAX = 40
HISTORY_CHARS_MAX = 96_000
PAST_TEXT_CHARS_MAX = 1_200
PAST_OUTPUT_CHARS_MAX = 4_000
PAST_INPUTS_MAX = 10
WEIGHED = 2_048
"""Of how many conversations it is remembered what their turns weigh."""


def past_turn(turn: Turn, outcome: RunOutcome, reason: str, last: Step | None) -> PastTurn:
    """A turn that has just ended. ``last``: its last step, where that came with the end.

    What was said to the turn and its model was never shown stands among its inputs: the next turn is to see it.
    """
    steps = turn.steps if last is None else (*turn.steps, last)
    given = (*shown(turn.inputs, PAST_INPUTS_MAX), *_unshown(turn, last))
    return PastTurn(
        run_id=turn.run_id,
        outcome=outcome,
        reason=clip(reason),
        inputs=tuple(map(_clipped, given)),
        skipped=max(0, len(turn.inputs) - PAST_INPUTS_MAX),
        steps=tuple(_past_step(turn.run_id, step) for step in steps),
        tally=tally(turn.inputs) if len(turn.inputs) > PAST_INPUTS_MAX else (),
        refused=turn.refused,
        held_since=turn.held_since,
    )


def remember(state: SessionState, past: PastTurn) -> SessionState:
    """The conversation with one more turn, within its bounds: what is archived goes first."""
    return _bounded(state._replace(history=(*state.history, past)))


def summarised(state: SessionState, summary: Summary) -> SessionState:
    """The state with ``summary`` in the place of the turns that it stands for."""
    kept = tuple(past for past in state.history if past.run_id > summary.through_run)
    return state._replace(summary=summary, history=kept)


def archive(state: SessionState, reset: int) -> SessionState:
    """The conversation taken out of sight by the reset at that sequence."""
    if not state.history:
        return state._replace(summary=None)
    hidden = Archive(reset, state.summary, state.history)
    return state._replace(summary=None, history=(), archives=(*state.archives, hidden))


def bring_back(state: SessionState) -> SessionState:
    """The conversation that was archived last, in sight again, before what was said since."""
    if not state.archives:
        return state
    *earlier, last = state.archives
    if state.summary is None:
        history = (*last.turns, *state.history)
        return state._replace(summary=last.summary, history=history, archives=tuple(earlier))
    summary = after(from_records(last.summary, last.turns), state.summary)
    return state._replace(summary=summary, archives=tuple(earlier))


def revise(state: SessionState, run_id: int, change: Callable[[PastTurn], tuple[Step, ...]]) -> SessionState:
    """The state after an outcome that arrived when its turn was over; unchanged if the conversation no longer shows the turn."""

    def revised(turns: tuple[PastTurn, ...]) -> tuple[PastTurn, ...]:
        return tuple(replace(each, steps=change(each)) if each.run_id == run_id else each for each in turns)

    turns = (*state.history, *(each for hidden in state.archives for each in hidden.turns))
    past = next((each for each in turns if each.run_id == run_id), None)
    if past is None or change(past) == past.steps:
        return state
    archives = tuple(replace(each, turns=revised(each.turns)) for each in state.archives)
    return _bounded(state._replace(history=revised(state.history), archives=archives))


def clip(text: str) -> str:
    """A text as far as the conversation shows it once its turn is over."""
    return text if len(text) <= PAST_TEXT_CHARS_MAX else text[: PAST_TEXT_CHARS_MAX - 1] + "…"


def _clipped(given: Input) -> Input:
    return given if len(given.text) <= PAST_TEXT_CHARS_MAX else replace(given, text=clip(given.text))


def _unshown(turn: Turn, last: Step | None) -> Iterable[Input]:
    told = {each.sequence for each in last.joined} if last else set()
    return (each for each in turn.steered if each.sequence not in told)


def _past_step(run_id: int, step: Step) -> Step:
    calls = tuple(
        replace(
            call,
            text=stand_in(call.text, f"{run_id}.{step.number}.{call.n}", PAST_OUTPUT_CHARS_MAX),
            data={},
        )
        for call in step.calls
    )
    seen = step.observation and SeenObservation(step.observation.digest, step.observation.at_ms, "")
    joined = tuple(map(_clipped, step.joined))
    return Step(step.number, clip(step.text), calls, seen, joined)


def _weigh(past: PastTurn) -> int:
    texts = sum(len(each.text) + 80 for each in past.inputs)
    steps = sum(
        len(step.text)
        + sum(len(each.text) + 80 for each in step.joined)
        + sum(len(call.text) + len(str(call.args)) + 80 for call in step.calls)
        for step in past.steps
    )
    kinds = sum(len(family) + 20 for family, _ in past.tally)
    return texts + steps + kinds + len(past.reason)


# A turn that is over stays the same object, and counts at the end of each later one.
_weights = OfEach(_weigh, WEIGHED)


def _bounded(state: SessionState) -> SessionState:
    """The state with a conversation that fits into a snapshot, the oldest gone first.

    What goes leaves a line each; a compaction would have told more.
    """
    turns = (*(each for hidden in state.archives for each in hidden.turns), *state.history)
    weights = _weights(turns)
    total = sum(weights) + sum(len(each.summary.text) for each in state.archives if each.summary)
    gone = 0
    while len(turns) - gone > 1 and (len(turns) - gone > HISTORY_TURNS_MAX or total > HISTORY_CHARS_MAX):
        total -= weights[gone]
        gone += 1
    if not gone:
        return state
    archives: list[Archive] = []
    for hidden in state.archives:
        going, gone = hidden.turns[:gone], max(0, gone - len(hidden.turns))
        # Of what is wholly gone nothing can be brought back.
        if len(going) < len(hidden.turns):
            told = from_records(hidden.summary, going) if going else hidden.summary
            archives.append(replace(hidden, summary=told, turns=hidden.turns[len(going) :]))
    summary = from_records(state.summary, state.history[:gone]) if gone else state.summary
    return state._replace(summary=summary, history=state.history[gone:], archives=tuple(archives))
