"""The past turns that the conversation shows, the archives of resets, and the bounds of both.

An archive is the part of the history that a reset hides. Archives and history share the bounds of one history, so undoing a
reset shows what would be shown without it (ADR 10).
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
"""Conversations whose turn weights are cached."""


def past_turn(turn: Turn, outcome: RunOutcome, reason: str, last: Step | None) -> PastTurn:
    """A turn that has just ended. ``last``: its last step, if it was recorded with the end.

    Messages to the turn that its model never saw become its inputs, so that the next turn sees them.
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
    """The conversation with one more turn, within its bounds: archives are dropped first."""
    return _bounded(state._replace(history=(*state.history, past)))


def summarised(state: SessionState, summary: Summary) -> SessionState:
    """The state with ``summary`` in place of the turns that it covers."""
    kept = tuple(past for past in state.history if past.run_id > summary.through_run)
    return state._replace(summary=summary, history=kept)


def archive(state: SessionState, reset: int) -> SessionState:
    """Archive the conversation for the reset at that sequence."""
    if not state.history:
        return state._replace(summary=None)
    hidden = Archive(reset, state.summary, state.history)
    return state._replace(summary=None, history=(), archives=(*state.archives, hidden))


def bring_back(state: SessionState) -> SessionState:
    """Restore the last archived conversation, before the turns since."""
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
    """The part of a text that the conversation shows after its turn has ended."""
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


# A past turn stays the same object, and is weighed at the end of each later one.
_weights = OfEach(_weigh, WEIGHED)


def _bounded(state: SessionState) -> SessionState:
    """The state with a conversation that fits into a snapshot; the oldest turns are dropped first.

    Each dropped turn leaves one line in the summary.
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
        # An archive without turns cannot be restored.
        if len(going) < len(hidden.turns):
            told = from_records(hidden.summary, going) if going else hidden.summary
            archives.append(replace(hidden, summary=told, turns=hidden.turns[len(going) :]))
    summary = from_records(state.summary, state.history[:gone]) if gone else state.summary
    return state._replace(summary=summary, history=state.history[gone:], archives=tuple(archives))
