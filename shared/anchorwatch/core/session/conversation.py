"""The past turns that the conversation shows, the archives of resets, and the bounds of both.

A turn that ends keeps what people wrote and what the model wrote word for word. Only the bounds of the whole
conversation shorten them, and an excerpt says so.

An archive is the part of the history that a reset hides. Archives and history share the bounds of one history, so undoing a
reset shows what would be shown without it (ADR 10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import is_

from anchorwatch.core.anchor import RunOutcome
from anchorwatch.core.memo import OfEach
from anchorwatch.core.session.outputs import call_handle, excerpt, input_handle, stand_in, words_handle
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
from anchorwatch.core.session.wakes import SHOWN_INPUTS_MAX, shown, tally

HISTORY_TURNS_MAX = 40
HISTORY_BYTES_MAX = 120 * 1024
"""Texts of the conversation in UTF-8, with an allowance for each entry: a snapshot holds them beside two anchors."""
ENTRY_BYTES = 160
PAST_OUTPUT_CHARS_MAX = 4_000
EXCERPT_CHARS = 1_200
"""Approximate size of an excerpt of a message or of the model's words."""
LAST_EXCERPTS_CHARS = (EXCERPT_CHARS, 300, 100)
"""As above, in turn, for all texts of a turn that does not fit alone."""
RECENT_TURNS = 2
"""The newest turns. Their texts are shortened last."""
WEIGHED = 2_048
"""Conversations whose turn weights are cached."""


def past_turn(turn: Turn, outcome: RunOutcome, reason: str, last: Step | None) -> PastTurn:
    """A turn that has just ended. ``last``: its last step, if it was recorded with the end.

    Messages to the turn that its model never saw become its inputs, so that the next turn sees them.
    """
    steps = turn.steps if last is None else (*turn.steps, last)
    given = (*shown(turn.inputs, SHOWN_INPUTS_MAX), *_unshown(turn, last))
    return PastTurn(
        run_id=turn.run_id,
        outcome=outcome,
        reason=reason,
        inputs=given,
        skipped=max(0, len(turn.inputs) - SHOWN_INPUTS_MAX),
        steps=tuple(_past_step(turn.run_id, step) for step in steps),
        tally=tally(turn.inputs) if len(turn.inputs) > SHOWN_INPUTS_MAX else (),
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


def past_output(text: str, run_id: int, step: int, n: int) -> str:
    """A tool's output as the conversation shows it after its turn has ended."""
    return stand_in(text, call_handle(run_id, step, n), PAST_OUTPUT_CHARS_MAX)


def with_excerpts(past: PastTurn, chars_max: int = EXCERPT_CHARS) -> PastTurn:
    """The turn with excerpts of its long messages and of its model's long texts; the same object if it has none."""
    steps = tuple(
        step
        if len(step.text) <= chars_max and not _any_long(step.joined, chars_max)
        else replace(
            step,
            text=excerpt(step.text, words_handle(past.run_id, step.number), chars_max),
            joined=_inputs_cut(step.joined, chars_max),
        )
        for step in past.steps
    )
    if not _any_long(past.inputs, chars_max) and all(map(is_, steps, past.steps)):
        return past
    return replace(past, inputs=_inputs_cut(past.inputs, chars_max), steps=steps)


def _any_long(inputs: Iterable[Input], chars_max: int) -> bool:
    return any(len(each.text) > chars_max for each in inputs)


def _inputs_cut(inputs: Iterable[Input], chars_max: int) -> tuple[Input, ...]:
    return tuple(
        replace(each, text=excerpt(each.text, input_handle(each.sequence), chars_max))
        if len(each.text) > chars_max
        else each
        for each in inputs
    )


def with_short_outputs(past: PastTurn, chars_max: int) -> PastTurn:
    """The turn with excerpts of its long outputs."""
    return replace(past, steps=tuple(with_short_calls(past.run_id, step, chars_max) for step in past.steps))


def with_short_calls(run_id: int, step: Step, chars_max: int) -> Step:
    """The step with excerpts of its long outputs."""
    calls = tuple(
        replace(call, text=stand_in(call.text, call_handle(run_id, step.number, call.n), chars_max))
        for call in step.calls
    )
    return replace(step, calls=calls)


def _unshown(turn: Turn, last: Step | None) -> Iterable[Input]:
    told = {each.sequence for each in last.joined} if last else set()
    return (each for each in turn.steered if each.sequence not in told)


def _past_step(run_id: int, step: Step) -> Step:
    calls = tuple(
        replace(call, text=past_output(call.text, run_id, step.number, call.n), data={})
        for call in step.calls
    )
    seen = step.observation and SeenObservation(step.observation.digest, step.observation.at_ms, "")
    return Step(step.number, step.text, calls, seen, step.joined)


def _weigh(past: PastTurn) -> int:
    """The bytes that a turn takes in a snapshot, nearly."""
    texts = [each.text for each in past.inputs]
    for step in past.steps:
        texts += [step.text, *(each.text for each in step.joined)]
        texts += [f"{call.text}{call.args}" for call in step.calls]
    texts += [past.reason, *(family for family, _ in past.tally)]
    return sum(_size(text) + ENTRY_BYTES for text in texts)


def _size(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


# A past turn stays the same object, and is weighed at the end of each later one.
_weights = OfEach(_weigh, WEIGHED)


def _bounded(state: SessionState) -> SessionState:
    """The state with a conversation that fits into a snapshot.

    Older turns get excerpts of their long texts, and the oldest are dropped, before a recent one gets excerpts. Each dropped
    turn leaves one line in the summary.
    """
    turns = (*(each for hidden in state.archives for each in hidden.turns), *state.history)
    weights = _weights(turns)
    summaries = sum(_size(each.summary.text) for each in state.archives if each.summary)
    if len(turns) <= HISTORY_TURNS_MAX and sum(weights) <= HISTORY_BYTES_MAX - summaries:
        return state
    gone, fitted = _fitted(turns, weights, HISTORY_BYTES_MAX - summaries)
    archives: list[Archive] = []
    for hidden in state.archives:
        count = len(hidden.turns)
        going, left, fitted = hidden.turns[:gone], fitted[min(gone, count) : count], fitted[count:]
        gone = max(0, gone - count)
        # An archive without turns cannot be restored.
        if left:
            told = from_records(hidden.summary, going) if going else hidden.summary
            archives.append(replace(hidden, summary=told, turns=left))
    summary = from_records(state.summary, state.history[:gone]) if gone else state.summary
    return state._replace(summary=summary, history=fitted[gone:], archives=tuple(archives))


def _fitted(
    turns: tuple[PastTurn, ...], weights: tuple[int, ...], bytes_max: int
) -> tuple[int, tuple[PastTurn, ...]]:
    """(how many of the oldest turns are dropped, all turns with the excerpts that the limit requires)."""
    shown, sizes = list(turns), list(weights)

    def shorten(index: int, past: PastTurn) -> None:
        if past is not shown[index]:
            shown[index], sizes[index] = past, _weigh(past)

    old = max(0, len(turns) - RECENT_TURNS)
    for index in range(old):
        if sum(sizes) <= bytes_max:
            break
        shorten(index, with_excerpts(shown[index]))
    gone = max(0, len(turns) - HISTORY_TURNS_MAX)
    while gone < old and sum(sizes[gone:]) > bytes_max:
        gone += 1
    for chars_max in LAST_EXCERPTS_CHARS:
        for index in range(gone, len(turns)):
            if sum(sizes[gone:]) <= bytes_max:
                return gone, tuple(shown)
            shorter = with_excerpts(shown[index], chars_max)
            shorten(index, with_short_outputs(shorter, chars_max))
    while gone < len(turns) - 1 and sum(sizes[gone:]) > bytes_max:
        gone += 1
    return gone, tuple(shown)
