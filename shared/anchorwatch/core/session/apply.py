"""State + event -> state. Applying a recorded event may not refuse: it happened."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from anchorwatch.core.records import Kind
from anchorwatch.core.session.critical import critical_lines
from anchorwatch.core.session.events import (
    AnchorChanged,
    CommandDecided,
    Compacted,
    Event,
    InputAccepted,
    OutcomeRecorded,
    PlannerEvent,
    SnapshotTaken,
    StepDecided,
    StepHead,
)
from anchorwatch.core.session.outputs import stand_in
from anchorwatch.core.session.state import (
    Call,
    Input,
    PastTurn,
    SessionState,
    Step,
    Summary,
    Turn,
    Unsettled,
)
from anchorwatch.core.session.summary import from_records
from anchorwatch.core.session.wakes import shown

HISTORY_TURNS_MAX = 40
HISTORY_CHARS_MAX = 96_000
PAST_TEXT_CHARS_MAX = 1_200
PAST_OUTPUT_CHARS_MAX = 4_000
PAST_INPUTS_MAX = 10
_ENDS_TURN = frozenset({Kind.TURN_ENDED, Kind.CANCELLED, Kind.DELETED})
_HOLDS = frozenset({Kind.ACQUIRED, Kind.TAKEN_OVER})


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event with its place in the journal. ``digest`` is the record's own, ``previous`` that of the planner record before."""

    sequence: int
    event: Event
    digest: str = ""
    previous: str = ""


def replay(state: SessionState, records: Iterable[Recorded]) -> SessionState:
    """Fold records, in sequence order, into the state."""
    for record in records:
        state = apply(state, record)
    return state


def apply(state: SessionState, record: Recorded) -> SessionState:
    """Fold one record into the state; one that was folded before changes nothing.

    ``read_through`` stays: between what was read and a record that this process has just written, others
    may have written inputs and outcomes that it has not seen.
    """
    event = record.event
    match event:
        case InputAccepted():
            return _accept(state, event)
        case OutcomeRecorded():
            return _settle(state, event)
        case AnchorChanged() | CommandDecided() | StepDecided() | SnapshotTaken() | Compacted():
            if record.sequence <= state.head:
                return state
            state = _apply_planner(state, event, record)
            return replace(state, head=record.sequence, head_digest=record.digest)
        case _:
            assert_never(event)


def _apply_planner(state: SessionState, event: PlannerEvent, record: Recorded) -> SessionState:
    match event:
        case AnchorChanged():
            state = _change_anchor(state, event, record)
        case CommandDecided():
            state = _add_call(state, event)
        case StepDecided():
            state = _begin_step(state, event.head)
        case Compacted():
            state = summarised(state, event.summary)
        case SnapshotTaken():
            return replace(_restore(state, event.state), snapshot_sequence=record.sequence, snapshot_age=0)
        case _:
            assert_never(event)
    return replace(state, snapshot_age=state.snapshot_age + 1)


def _accept(state: SessionState, event: InputAccepted) -> SessionState:
    given = event.input
    through = state.anchor.inputs_through if state.anchor else 0
    taken = state.anchor.turn.inputs_through if state.anchor and state.anchor.turn else through
    known = any(pending.sequence == given.sequence for pending in state.pending)
    if given.sequence <= max(through, taken) or known:
        return state
    ordered = tuple(sorted((*state.pending, given), key=lambda each: each.sequence))
    return replace(state, pending=ordered)


def _restore(state: SessionState, snapshot: SessionState) -> SessionState:
    # A state that was folded up to the snapshot knows all that the snapshot does, and the inputs accepted meanwhile.
    if state.head:
        return state
    kept = tuple(
        each
        for each in state.pending
        if snapshot.anchor is None or each.sequence > snapshot.anchor.inputs_through
    )
    return replace(snapshot, pending=kept)


def _change_anchor(state: SessionState, event: AnchorChanged, record: Recorded) -> SessionState:
    anchor = event.anchor
    state = replace(state, anchor=anchor, anchor_sequence=record.sequence)
    if event.kind not in _HOLDS:
        state = replace(state, told=anchor, told_sequence=record.sequence, told_digest=record.digest)
    if event.kind == Kind.ACQUIRED and anchor.turn is not None:
        taken = tuple(each for each in state.pending if each.sequence <= anchor.turn.inputs_through)
        rest = tuple(each for each in state.pending if each.sequence > anchor.turn.inputs_through)
        turn = Turn(
            run_id=anchor.run_id,
            turn_id=anchor.turn.id,
            started_at_ms=event.at_ms,
            held_since=record.sequence,
            woken_by=anchor.turn.woken_by,
            inputs=taken,
            origin=record.digest,
        )
        return replace(state, pending=rest, turn=turn, critical=_critical(state.critical, taken))
    if event.kind == Kind.TAKEN_OVER and state.turn is not None and anchor.turn is not None:
        turn = replace(state.turn, held_since=record.sequence, woken_by=anchor.turn.woken_by)
        return replace(state, turn=_withdraw_ephemeral(turn))
    if event.kind in _ENDS_TURN and state.turn is not None:
        return _end_turn(state, event)
    return state


def _critical(known: tuple[str, ...], taken: Iterable[Input]) -> tuple[str, ...]:
    """Only a person can label a fact: what comes from outside gives no orders."""
    new = (line for each in taken if each.kind == "message" for line in critical_lines(each.text))
    return tuple(dict.fromkeys((*known, *new)))


def _end_turn(state: SessionState, event: AnchorChanged) -> SessionState:
    turn = state.turn
    assert turn is not None  # noqa: S101 - the caller looked
    steps = turn.steps
    if event.head is not None:
        steps = (*steps, _step(event.head))
    past = PastTurn(
        run_id=turn.run_id,
        outcome=event.anchor.last_run_outcome or "failed",
        reason=_clip(event.anchor.last_run_reason),
        inputs=tuple(replace(each, text=_clip(each.text)) for each in shown(turn.inputs, PAST_INPUTS_MAX)),
        skipped=max(0, len(turn.inputs) - PAST_INPUTS_MAX),
        steps=tuple(_past_step(turn.run_id, step) for step in steps),
    )
    return _bounded(replace(state, turn=None, history=(*state.history, past)))


def _withdraw_ephemeral(turn: Turn) -> Turn:
    def withdraw(call: Call) -> Call:
        if call.durable or call.state in ("pending", "rejected"):
            return call
        return replace(
            call,
            state="withdrawn",
            text="this result was ephemeral and is gone since a restart; call again",
            data={},
        )

    return replace(
        turn, steps=tuple(replace(step, calls=tuple(map(withdraw, step.calls))) for step in turn.steps)
    )


def _step(head: StepHead) -> Step:
    rejected = tuple(
        Call(n=n, tool=tool, label=label, args={}, state="rejected", text=f"{why}: {raw}" if raw else why)
        for n, tool, label, raw, why in head.rejected
    )
    return Step(number=head.step, text=head.text, calls=rejected, observation=head.observation)


def _begin_step(state: SessionState, head: StepHead) -> SessionState:
    if state.turn is None:
        return state
    return replace(state, turn=replace(state.turn, steps=(*state.turn.steps, _step(head))))


def _add_call(state: SessionState, event: CommandDecided) -> SessionState:
    if event.mutating and event.resource:
        this = Unsettled(event.call, event.pool, event.resource)
        state = replace(state, unsettled=(*state.unsettled, this))
    if event.head is not None:
        state = _begin_step(state, event.head)
    if state.turn is None or not state.turn.steps:
        return state
    call = Call(
        n=event.call.n,
        tool=event.tool,
        args=event.args,
        label=event.label,
        pool=event.pool,
        resource=event.resource,
        verb=event.verb,
    )
    last = state.turn.steps[-1]
    calls = tuple(sorted((*last.calls, call), key=lambda each: each.n))
    return replace(
        state, turn=replace(state.turn, steps=(*state.turn.steps[:-1], replace(last, calls=calls)))
    )


def _settle(state: SessionState, event: OutcomeRecorded) -> SessionState:
    if event.state != "unknown" and any(each.call == event.call for each in state.unsettled):
        rest = tuple(each for each in state.unsettled if each.call != event.call)
        state = replace(state, unsettled=rest)
    turn = state.turn
    if turn is not None and turn.run_id == event.call.run:
        return replace(state, turn=replace(turn, steps=_settled(turn.steps, event)))
    past = next((each for each in state.history if each.run_id == event.call.run), None)
    if past is None:
        return state
    steps = _settled(past.steps, replace(event, text=_clip(event.text), data={}))
    if steps == past.steps:
        return state
    settled = replace(past, steps=steps)
    history = tuple(settled if each is past else each for each in state.history)
    return _bounded(replace(state, history=history))


def _settled(steps: tuple[Step, ...], event: OutcomeRecorded) -> tuple[Step, ...]:
    return tuple(
        replace(step, calls=tuple(_outcome(call, event) for call in step.calls))
        if step.number == event.call.step
        else step
        for step in steps
    )


def _outcome(call: Call, event: OutcomeRecorded) -> Call:
    if call.n != event.call.n or call.state not in ("pending", "unknown"):
        return call
    return replace(call, state=event.state, text=event.text, data=event.data, durable=event.durable)


def _clip(text: str) -> str:
    return text if len(text) <= PAST_TEXT_CHARS_MAX else text[: PAST_TEXT_CHARS_MAX - 1] + "…"


def _past_step(run_id: int, step: Step) -> Step:
    calls = tuple(
        replace(
            call,
            text=stand_in(call.text, f"{run_id}.{step.number}.{call.n}", PAST_OUTPUT_CHARS_MAX),
            data={},
        )
        for call in step.calls
    )
    seen = step.observation and replace(step.observation, text="", facts={})
    return replace(step, text=_clip(step.text), calls=calls, observation=seen)


def summarised(state: SessionState, summary: Summary) -> SessionState:
    """The state with ``summary`` in the place of the turns that it stands for."""
    kept = tuple(past for past in state.history if past.run_id > summary.through_run)
    return replace(state, summary=summary, history=kept)


def _weight(past: PastTurn) -> int:
    texts = sum(len(each.text) + 80 for each in past.inputs)
    steps = sum(
        len(step.text) + sum(len(call.text) + len(str(call.args)) + 80 for call in step.calls)
        for step in past.steps
    )
    return texts + steps + len(past.reason)


def _bounded(state: SessionState) -> SessionState:
    """The state with a history that fits into a snapshot. What goes leaves a line each; a compaction would have told more."""
    history = state.history
    total = sum(map(_weight, history))
    gone = 0
    while len(history) - gone > 1 and (len(history) - gone > HISTORY_TURNS_MAX or total > HISTORY_CHARS_MAX):
        total -= _weight(history[gone])
        gone += 1
    if not gone:
        return state
    return replace(state, summary=from_records(state.summary, history[:gone]), history=history[gone:])
