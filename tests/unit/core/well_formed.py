"""What every state of a session is, whatever happened to it: one predicate, for all property tests of the machine."""

from __future__ import annotations

from collections.abc import Iterator

from anchorwatch.core.anchor import Anchor
from anchorwatch.core.session import SessionState

ENDED = ("idle", "paused", "quarantined", "deleted")


def faults_of(state: SessionState) -> list[str]:
    """What is impossible about the state; empty when it is well formed."""
    anchor = state.anchor
    if anchor is None:
        return ["records of a session without an anchor"] if state.head or state.turn else []
    return [*_of_anchor(anchor), *_of_turn(state, anchor), *_of_inputs(state, anchor), *_of_heads(state)]


def _of_anchor(anchor: Anchor) -> Iterator[str]:
    if anchor.fence.run > anchor.run_id + 1:
        yield "the fence keeps out a run after the next"
    if anchor.generation < anchor.run_id:
        yield "a run began without a generation of its own"
    if anchor.run_count != anchor.run_id - (anchor.turn is not None):
        yield "a run that is over is not counted, or one is counted twice"
    if anchor.turn is None and anchor.run_id and anchor.fence.run <= anchor.run_id:
        yield "a run is over, and its commands may start"
    if anchor.turn is not None and anchor.fence.run > anchor.run_id and anchor.status != "quarantined":
        yield "a run goes on, and its commands must not start"
    if (anchor.turn is None) != (anchor.execution_id is None):
        yield "a holder without a turn, or a turn without a holder"
    if anchor.status == "active" and anchor.turn is None:
        yield "active without a turn"
    if anchor.status in ("idle", "deleted") and anchor.turn is not None:
        yield f"{anchor.status} with a turn"
    if anchor.last_run_id != anchor.run_count:
        yield "the last run that ended is not the last that was counted"


def _of_turn(state: SessionState, anchor: Anchor) -> Iterator[str]:
    turn, mark = state.turn, anchor.turn
    if (turn is None) != (mark is None):
        yield "the fold and the anchor do not agree whether a turn runs"
    if turn is None or mark is None:
        return
    if (turn.run_id, turn.turn_id, turn.woken_by) != (anchor.run_id, mark.id, mark.woken_by):
        yield "the fold and the anchor speak of different turns"
    if [step.number for step in turn.steps] != list(range(1, len(turn.steps) + 1)):
        yield "a step is missing, or stands twice"
    if any(not step.settled for step in turn.steps[:-1]):
        yield "a step was decided before the one before it was settled"
    for step in turn.steps:
        numbers = [call.n for call in step.calls]
        if numbers != sorted(set(numbers)):
            yield f"calls of step {step.number} stand twice, or in another order"


def _of_inputs(state: SessionState, anchor: Anchor) -> Iterator[str]:
    waiting = [each.sequence for each in state.pending]
    if waiting != sorted(set(waiting)):
        yield "what waits stands twice, or in another order"
    if not all(map(state.takes, waiting)):
        yield "what has its disposition waits"
    if list(anchor.inputs_joined) != sorted(set(anchor.inputs_joined)):
        yield "what joined is not in order"
    if any(each <= anchor.inputs_through for each in anchor.inputs_joined):
        yield "what joined is named though it is passed"
    if state.turn is not None and {each.sequence for each in state.turn.inputs} & set(waiting):
        yield "what a turn took waits"


def _of_heads(state: SessionState) -> Iterator[str]:
    if not 0 < state.told_sequence <= state.anchor_sequence <= state.head:
        yield "the anchor stands behind the last record"
    if state.snapshot_sequence > state.head:
        yield "a snapshot from the future"
    runs = [past.run_id for past in state.history]
    if runs != sorted(set(runs)):
        yield "the history is not in order"
    calls = [each.call for each in state.unsettled]
    if len(calls) != len(set(calls)):
        yield "a command is unsettled twice"
