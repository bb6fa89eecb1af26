"""State + event -> state. Applying a recorded event may not refuse: it happened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, assert_never

from anchorwatch.core.records import Kind
from anchorwatch.core.session.commands import CRITICAL_LINES
from anchorwatch.core.session.conversation import (
    archive,
    bring_back,
    past_output,
    past_turn,
    remember,
    revise,
    summarised,
)
from anchorwatch.core.session.critical import Labelled, with_lines_of
from anchorwatch.core.session.events import (
    AnchorChanged,
    CommandDecided,
    Compacted,
    Event,
    InputAccepted,
    ModelRequested,
    OutcomeRecorded,
    PlannerEvent,
    SnapshotTaken,
    StepDecided,
    StepHead,
)
from anchorwatch.core.session.joining import named
from anchorwatch.core.session.spending import DAY_MS, used
from anchorwatch.core.session.state import Call, Input, PastTurn, SessionState, Step, Turn, Unsettled
from anchorwatch.core.session.transitions import ENDS_TURN, HOLDS_TURN


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event with its place in the journal. ``digest`` is the record's own, ``previous`` that of the planner record before."""

    sequence: int
    event: Event
    digest: str = ""
    previous: str = ""


def replay(state: SessionState, records: Iterable[Recorded]) -> SessionState:
    """Fold records, in sequence order, into the state."""
    given: list[Input] = []
    for record in records:
        # Accepted together, so that a burst costs linear time.
        if isinstance(record.event, InputAccepted):
            given.append(record.event.input)
            continue
        state = apply(_accept(state, given), record)
        given = []
    return _accept(state, given)


def apply(state: SessionState, record: Recorded) -> SessionState:
    """Fold one record into the state; one that was folded before changes nothing.

    ``read_through`` does not change: between the last read and a record of this process, others may have written inputs
    and outcomes that it has not read (INV-102).
    """
    event = record.event
    match event:
        case InputAccepted():
            return _accept(state, [event.input])
        case OutcomeRecorded():
            return _settle(state, event, record.sequence)
        case (
            AnchorChanged()
            | CommandDecided()
            | StepDecided()
            | SnapshotTaken()
            | Compacted()
            | ModelRequested()
        ):
            if record.sequence <= state.head:
                return state
            age = 0 if isinstance(event, SnapshotTaken) else state.snapshot_age + 1
            state = _apply_planner(state, event, record)
            return state._replace(head=record.sequence, head_digest=record.digest, snapshot_age=age)
        case _:
            assert_never(event)


def _apply_planner(state: SessionState, event: PlannerEvent, record: Recorded) -> SessionState:
    match event:
        case AnchorChanged():
            return _change_anchor(state, event, record)
        case CommandDecided():
            return _add_call(state, event, record.sequence)
        case StepDecided():
            return _begin_step(state, event.head)
        case Compacted():
            state = _spend(state, event.usage, state.spent.day * DAY_MS)
            return summarised(state, event.summary)
        case ModelRequested():
            return _spend(_spend(state, event.usage, event.at_ms), event.reserves, event.at_ms)
        case SnapshotTaken():
            return _restore(state, event.state)._replace(snapshot_sequence=record.sequence)
        case _:
            assert_never(event)


def _accept(state: SessionState, given: Iterable[Input]) -> SessionState:
    known = {each.sequence: each for each in state.pending}
    new = [
        each
        for each in given
        if each.sequence not in known and not each.settled and state.takes(each.sequence)
    ]
    if not new:
        return state
    known.update((each.sequence, each) for each in reversed(new))
    return state._replace(pending=tuple(known[sequence] for sequence in sorted(known)))


def _restore(state: SessionState, snapshot: SessionState) -> SessionState:
    # A state folded up to the snapshot holds everything in it, and the inputs accepted since.
    if state.head:
        return state
    kept = tuple(each for each in state.pending if snapshot.takes(each.sequence))
    return snapshot._replace(pending=kept)


def _change_anchor(state: SessionState, event: AnchorChanged, record: Recorded) -> SessionState:
    anchor = event.anchor
    refused = anchor.inputs_refused - (state.anchor.inputs_refused if state.anchor else 0)
    state = state._replace(
        anchor=anchor, anchor_sequence=record.sequence, refused=state.refused + max(0, refused)
    )
    if event.kind not in HOLDS_TURN:
        state = state._replace(told=anchor, told_sequence=record.sequence, told_digest=record.digest)
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
            refused=state.refused,
        )
        return state._replace(
            pending=rest,
            turn=turn,
            refused=0,
            critical=with_lines_of(state.critical, taken),
            spent=state.spent.turn_begun(),
        )
    if event.kind == Kind.TAKEN_OVER and state.turn is not None and anchor.turn is not None:
        turn = replace(state.turn, held_since=record.sequence, woken_by=anchor.turn.woken_by)
        return state._replace(turn=_withdraw_ephemeral(turn))
    return _order(state, event, record.sequence)


def _order(state: SessionState, event: AnchorChanged, sequence: int) -> SessionState:
    """What the end of a turn, or a person's order, changes besides the anchor."""
    if event.kind == Kind.STEERED and state.turn is not None:
        text = str(event.more.get("text", ""))
        id_ = event.control_id or f"steer-{sequence}"
        said = Input(sequence, id_, "message", 0, event.at_ms, text, by=event.by)
        turn = replace(state.turn, steered=(*state.turn.steered, said))
        return state._replace(turn=turn, critical=with_lines_of(state.critical, [said]))
    if event.kind == Kind.DIRECTIVES and event.more.get("which") == CRITICAL_LINES:
        state = state._replace(critical=_relabelled(state, event, sequence))
    if event.kind in ENDS_TURN and event.anchor.turn is None and state.turn is not None:
        state = _end_turn(state, state.turn, event)
    if event.kind == Kind.RESET:
        state = archive(state, sequence)
    if event.kind == Kind.RESET_UNDONE:
        state = bring_back(state)
    return state._replace(pending=tuple(each for each in state.pending if state.takes(each.sequence)))


def _relabelled(state: SessionState, event: AnchorChanged, sequence: int) -> tuple[Labelled, ...]:
    """The labelled lines after a person withdrew or corrected one."""
    old, new = event.more["line"], event.more.get("text", "")
    corrected = [Labelled(new, event.by, event.at_ms, sequence)] if new else []
    return tuple(each for known in state.critical for each in (corrected if known.text == old else [known]))


def _end_turn(state: SessionState, turn: Turn, event: AnchorChanged) -> SessionState:
    last = None
    if event.head is not None:
        last = _step(event.head, named(state, event.head.joined))
        state = asked(_join(state, event.head), event.head)
    state = _spend(state, event.more.get("usage", {}), event.at_ms)
    anchor = event.anchor
    past = past_turn(turn, anchor.last_run_outcome or "failed", anchor.last_run_reason, last)
    return remember(state._replace(turn=None), past)


def _withdraw_ephemeral(turn: Turn) -> Turn:
    """The turn after a takeover: ephemeral results are not used any more (INV-505)."""
    return replace(
        turn, steps=tuple(replace(step, calls=tuple(map(_withdraw, step.calls))) for step in turn.steps)
    )


def _withdraw(call: Call) -> Call:
    if call.durable or call.state in ("pending", "rejected"):
        return call
    text = "this result was ephemeral and is gone since a restart; call again"
    return replace(call, state="withdrawn", text=text, data={})


def _step(head: StepHead, joined: tuple[Input, ...]) -> Step:
    rejected = tuple(
        Call(n=n, tool=tool, label=label, args={}, state="rejected", text=f"{why}: {raw}" if raw else why)
        for n, tool, label, raw, why in head.rejected
    )
    return Step(number=head.step, text=head.text, calls=rejected, observation=head.observation, joined=joined)


def _begin_step(state: SessionState, head: StepHead) -> SessionState:
    turn = state.turn
    if turn is None:
        return state
    step = _step(head, named(state, head.joined))
    steered = tuple(each for each in turn.steered if each.sequence not in head.joined)
    state = asked(_join(state, head), head)
    return state._replace(
        turn=replace(turn, steps=(*turn.steps, step), steered=steered, away=head.away or turn.away)
    )


def asked(state: SessionState, head: StepHead) -> SessionState:
    """The state with the usage of the step's model calls."""
    if head.observation is None:
        return state
    return _spend(state, head.usage, head.observation.at_ms)


def _spend(state: SessionState, usage: Mapping[str, Any], at_ms: int) -> SessionState:
    return state._replace(spent=state.spent.with_call(used(usage), at_ms)) if usage else state


def _join(state: SessionState, head: StepHead) -> SessionState:
    """Remove the inputs that join the turn from the pending ones, and keep their labelled lines."""
    joined = [each for each in state.pending if each.sequence in head.joined]
    if not joined:
        return state
    pending = tuple(each for each in state.pending if each.sequence not in head.joined)
    return state._replace(pending=pending, critical=with_lines_of(state.critical, joined))


def _add_call(state: SessionState, event: CommandDecided, sequence: int) -> SessionState:
    if event.mutating and event.resource:
        this = Unsettled(event.call, event.pool, event.resource)
        state = state._replace(unsettled=(*state.unsettled, this))
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
        mutating=event.mutating,
        sequence=sequence,
    )
    last = state.turn.steps[-1]
    calls = tuple(sorted((*last.calls, call), key=lambda each: each.n))
    steps = (*state.turn.steps[:-1], replace(last, calls=calls))
    return state._replace(turn=replace(state.turn, steps=steps))


def _settle(state: SessionState, event: OutcomeRecorded, sequence: int) -> SessionState:
    if event.state != "unknown" and any(each.call == event.call for each in state.unsettled):
        rest = tuple(each for each in state.unsettled if each.call != event.call)
        state = state._replace(unsettled=rest)
    turn = state.turn
    if turn is not None and turn.run_id == event.call.run:
        return state._replace(turn=replace(turn, steps=_settled(turn, event, sequence)))
    call = event.call
    shown = replace(event, text=past_output(event.text, call.run, call.step, call.n), data={})
    return revise(state, call.run, lambda past: _settled(past, shown, sequence))


def _settled(turn: Turn | PastTurn, event: OutcomeRecorded, sequence: int) -> tuple[Step, ...]:
    """The steps with the outcome. One from before the turn was taken over may be read only after the takeover."""
    outlived = not event.durable and sequence < turn.held_since
    return tuple(
        replace(step, calls=tuple(_outcome(call, event, outlived=outlived) for call in step.calls))
        if step.number == event.call.step and any(_waits(call, event) for call in step.calls)
        else step
        for step in turn.steps
    )


def _waits(call: Call, event: OutcomeRecorded) -> bool:
    return call.n == event.call.n and call.state in ("pending", "unknown")


def _outcome(call: Call, event: OutcomeRecorded, *, outlived: bool) -> Call:
    if not _waits(call, event):
        return call
    settled = _settled_call(call, event)
    return _withdraw(settled) if outlived else settled


def _settled_call(call: Call, event: OutcomeRecorded) -> Call:
    return replace(call, state=event.state, text=event.text, data=event.data, durable=event.durable)
