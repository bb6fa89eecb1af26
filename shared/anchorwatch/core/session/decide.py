"""State + command -> events, or `Refused` with the reason and what to do.

What each change of the anchor requires and sets is the table in `anchorwatch.core.session.transitions`.
The planner's own changes are decided here, people's orders in `anchorwatch.core.session.controls`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import assert_never

from anchorwatch.core.anchor import Anchor, TurnMark
from anchorwatch.core.effect.intent import intent_key
from anchorwatch.core.emergency import OpenEmergency, change_of, observed
from anchorwatch.core.errors import Fenced, NotFound, Refused, SessionDeleted
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind
from anchorwatch.core.session.commands import (
    Acquire,
    ClearWakes,
    Command,
    CommitStep,
    Compact,
    Control,
    Create,
    Direct,
    EndEmergency,
    EndTurn,
    NoteEmergency,
    PlannedCall,
    RefuseInputs,
    Relabel,
    Repair,
    RequestModel,
    Reset,
    Steer,
    TakeOver,
    UndoReset,
)
from anchorwatch.core.session.controls import carry_out
from anchorwatch.core.session.events import (
    AnchorChanged,
    CommandDecided,
    Compacted,
    ModelRequested,
    PlannerEvent,
    StepDecided,
    StepHead,
)
from anchorwatch.core.session.goals import MISSED_RUNS, missed_after
from anchorwatch.core.session.joining import named
from anchorwatch.core.session.quarantine import repaired
from anchorwatch.core.session.state import SessionState, Turn, Unsettled
from anchorwatch.core.session.transitions import changed
from anchorwatch.core.session.turn_end import end_turn, refuse_inputs, refused_summary
from anchorwatch.core.session.woken import woken
from anchorwatch.core.times import iso

ANSWERED_MAX = 20
"""Requests that the end of a turn names."""


def decide(state: SessionState, command: Command) -> Sequence[PlannerEvent]:
    """The events that carry the command out.

    Raises:
        Refused: the session's state does not allow it. Fenced: ``execution_id`` does not hold the session,
        or the step was decided on an older state. NotFound: the session does not exist. SessionDeleted. SessionQuarantined.
        TurnNotActive. ChangedSince.
    """
    if isinstance(command, Create):
        return _create(state, command)
    if isinstance(command, Repair):
        return [repair(state, command)]
    anchor = _living(state)
    match command:
        case Acquire():
            return [_acquire(state, anchor, command)]
        case TakeOver():
            return [_take_over(anchor, command)]
        case RefuseInputs():
            return [_refuse(anchor, command)]
        case RequestModel() | CommitStep() | NoteEmergency() | Compact() | EndTurn():
            return _in_turn(state, anchor, _held(state, anchor, command.execution_id), command)
        case (
            Control() | Direct() | Relabel() | Steer() | ClearWakes() | Reset() | UndoReset() | EndEmergency()
        ):
            return [carry_out(state, anchor, command)]
        case _:
            assert_never(command)


def _living(state: SessionState) -> Anchor:
    if state.anchor is None:
        raise NotFound("session not found", hint="`anchorwatch sessions` lists them")
    if state.anchor.status == "deleted":
        raise SessionDeleted(f"the session {state.anchor.session} was deleted")
    return state.anchor


def _held(state: SessionState, anchor: Anchor, execution_id: str) -> Turn:
    if anchor.status == "paused":
        raise Refused("the session is paused", hint="`anchorwatch resume`")
    if anchor.status != "active" or state.turn is None or anchor.execution_id != execution_id:
        raise Fenced(f"{execution_id} does not hold the session")
    return state.turn


def _create(state: SessionState, command: Create) -> Sequence[PlannerEvent]:
    if state.anchor is not None:
        if state.anchor.status == "deleted":
            raise SessionDeleted(
                f"the session {command.ref.session} was deleted; its name cannot be reused",
                hint="choose another name",
            )
        raise Refused(f"the session {command.ref.session} exists")
    anchor = Anchor(
        workspace=command.ref.workspace,
        session=command.ref.session,
        agent=command.agent,
        objectives=command.objectives,
        constraints=command.constraints,
        next_check_at=iso(command.at_ms),
    )
    return [AnchorChanged(Kind.CREATED, anchor, command.at_ms, by=command.by, control_id=command.control_id)]


def _acquire(state: SessionState, anchor: Anchor, command: Acquire) -> AnchorChanged:
    after = replace(
        changed(anchor, Kind.ACQUIRED),
        agent=command.agent,
        execution_id=command.execution_id,
        turn=TurnMark(
            id=command.turn_id,
            started_at=iso(command.at_ms),
            woken_by=command.woken_by,
            inputs_through=max(command.through, anchor.inputs_through),
        ),
        pace=command.pace,
    )
    taken = [each for each in state.pending if each.sequence <= command.through]
    reason = woken(taken, command.woken_by)
    return AnchorChanged(Kind.ACQUIRED, after, command.at_ms, reason, by=command.execution_id)


def _refuse(anchor: Anchor, command: RefuseInputs) -> AnchorChanged:
    after = changed(anchor, Kind.INPUTS_REFUSED)
    if not command.inputs:
        raise Refused("there are no inputs to refuse")
    return AnchorChanged(
        Kind.INPUTS_REFUSED,
        refuse_inputs(after, command.inputs),
        command.at_ms,
        command.reason,
        by=command.by,
        more={"refused": refused_summary(command.inputs)},
    )


def _take_over(anchor: Anchor, command: TakeOver) -> AnchorChanged:
    after = changed(anchor, Kind.TAKEN_OVER)
    if after.turn is None:
        raise Refused("the session has no turn to take over")
    after = replace(
        after, execution_id=command.execution_id, turn=replace(after.turn, woken_by=command.woken_by)
    )
    return AnchorChanged(
        Kind.TAKEN_OVER, after, command.at_ms, reason=command.reason, by=command.execution_id
    )


def _in_turn(
    state: SessionState,
    anchor: Anchor,
    turn: Turn,
    command: RequestModel | CommitStep | NoteEmergency | Compact | EndTurn,
) -> Sequence[PlannerEvent]:
    match command:
        case RequestModel():
            return [_request_model(state, turn, command)]
        case CommitStep():
            return _commit_step(state, turn, anchor, command)
        case NoteEmergency():
            return _note_emergency(anchor, command)
        case Compact():
            return [_compact(state, command)]
        case EndTurn():
            return [_end(state, anchor, turn, command)]
        case _:
            assert_never(command)


def _request_model(state: SessionState, turn: Turn, command: RequestModel) -> ModelRequested:
    return ModelRequested(
        turn.run_id, command.model, command.reserves, command.usage, command.at_ms, state.snapshot_sequence
    )


def _commit_step(
    state: SessionState, turn: Turn, anchor: Anchor, command: CommitStep
) -> Sequence[PlannerEvent]:
    if not turn.settled:
        raise Refused("the previous step has commands without an outcome")
    if command.head.step != len(turn.steps) + 1:
        raise Fenced(f"step {command.head.step} was decided on an older state")
    _check_shown(state, turn, command.head)
    if not command.calls:
        return [StepDecided(anchor.run_id, command.head, state.snapshot_sequence)]
    events: list[PlannerEvent] = []
    unsettled = list(state.unsettled)
    intents = Counter(call.intent for step in turn.steps for call in step.calls if call.state != "rejected")
    for call in command.calls:
        intent = (call.verb or call.tool, call.resource)
        key = intent_key(
            anchor.workspace, anchor.session, (turn.run_id, turn.origin), intent, intents[intent]
        )
        head = None if events else command.head
        event = _command(
            command, call, turn, anchor, head=head, effect_key=key, after=_before(unsettled, call)
        )
        events.append(event)
        intents[intent] += 1
        if call.mutating:
            unsettled.append(Unsettled(event.call, event.pool, event.resource))
    return events


def _command(
    command: CommitStep,
    call: PlannedCall,
    turn: Turn,
    anchor: Anchor,
    *,
    head: StepHead | None,
    effect_key: str,
    after: tuple[Unsettled, ...],
) -> CommandDecided:
    seen = command.head.observation
    return CommandDecided(
        call=CallId(anchor.run_id, command.head.step, call.n),
        turn_id=turn.turn_id,
        generation=anchor.generation,
        agent=anchor.agent,
        pool=call.pool,
        tool=call.tool,
        args=call.args,
        resource=call.resource,
        label=call.label,
        observation_digest=seen.digest if seen else "",
        observation_at_ms=max(seen.at_ms, command.seen_again_at_ms) if seen else 0,
        head=head,
        effect_key=effect_key,
        verb=call.verb,
        mutating=call.mutating,
        after=after,
    )


def _before(unsettled: Sequence[Unsettled], call: PlannedCall) -> tuple[Unsettled, ...]:
    """The commands that need a definite outcome before this call: all on its resource, since any may end `unknown`."""
    if not call.mutating or not call.resource:
        return ()
    return tuple(each for each in unsettled if each.resource == call.resource)


def _compact(state: SessionState, command: Compact) -> Compacted:
    through = command.summary.through_run
    before = state.summary.through_run if state.summary else 0
    if through <= before or all(past.run_id != through for past in state.history):
        raise Fenced(f"the conversation through run {through} was compacted on an older state")
    return Compacted(command.summary, command.tokens, command.because, command.usage, state.snapshot_sequence)


def _note_emergency(anchor: Anchor, command: NoteEmergency) -> Sequence[AnchorChanged]:
    before = anchor.emergency
    after = observed(before, command.seen, command.seen_at_ms)
    change = change_of(before, after)
    if change is None:
        return []
    shown = after or before
    assert shown is not None  # noqa: S101 - one of them changed
    return [
        AnchorChanged(
            Kind.EMERGENCY_OBSERVED,
            replace(changed(anchor, Kind.EMERGENCY_OBSERVED), emergency=after),
            command.at_ms,
            by=command.execution_id,
            more={"change": change, "emergency": asdict(shown)},
        )
    ]


def _end(state: SessionState, anchor: Anchor, turn: Turn, command: EndTurn) -> AnchorChanged:
    if not turn.settled:
        raise Refused("the turn has commands without an outcome")
    if command.head is not None:
        _check_shown(state, turn, command.head)
    joined = command.head.joined if command.head else ()
    answers = _answers(state, turn, command.head)
    missed = missed_after(anchor.objectives, anchor.objectives_missed, command.goal_facts)
    told = [
        text for text, runs in missed.items() if runs == MISSED_RUNS > anchor.objectives_missed.get(text, 0)
    ]
    away = (command.head.away if command.head else ()) or turn.away
    after = replace(
        end_turn(
            state,
            changed(anchor, Kind.TURN_ENDED),
            command.outcome,
            command.reason,
            command.at_ms,
            joined,
        ),
        facts=dict(command.facts),
        next_check_at=iso(command.next_check_at_ms),
        prompt=command.prompt or anchor.prompt,
        emergency=_renewed(anchor, command),
        objectives_missed=missed,
        runs_by_rules=anchor.runs_by_rules + 1 if away else 0,
    )
    return AnchorChanged(
        Kind.TURN_ENDED,
        after,
        command.at_ms,
        reason=command.reason,
        by=command.execution_id,
        head=command.head,
        more={
            **({"warning": command.warning} if command.warning else {}),
            **({"answers": answers} if answers else {}),
            **({"missed": told} if told else {}),
            **({"away": [list(each) for each in away]} if away else {}),
            **({"usage": dict(command.usage)} if command.usage else {}),
        },
    )


def _renewed(anchor: Anchor, command: EndTurn) -> OpenEmergency | None:
    """The open emergency with its last sighting. Only its own record raises, changes or ends one: people are notified of it."""
    after = observed(anchor.emergency, command.seen, command.seen_at_ms)
    return after if change_of(anchor.emergency, after) is None else anchor.emergency


def _answers(state: SessionState, turn: Turn, head: StepHead | None) -> list[int]:
    """The sequences of the newest requests of people to the turn that its last words answer."""
    if head is None or not head.text.strip():
        return []
    joined = (*(each for step in turn.steps for each in step.joined), *named(state, head.joined))
    asked = (each.sequence for each in (*turn.inputs, *joined) if each.kind in ("message", "trigger"))
    return sorted(set(asked))[-ANSWERED_MAX:]


def repair(state: SessionState, command: Repair) -> AnchorChanged:
    """The change that accepts what was lost. It never refuses: the plan was confirmed against the damaged session."""
    after = command.believed
    if command.restarts:
        after = repaired(state, command.believed, command.was, command.reason, command.at_ms)
    return AnchorChanged(
        Kind.REPAIRED,
        after,
        command.at_ms,
        reason=command.note,
        by=command.by,
        control_id=command.control_id,
        more=command.more,
    )


def _check_shown(state: SessionState, turn: Turn, head: StepHead) -> None:
    """A step is decided on every message to its turn, and only on pending ones."""
    shown = set(head.joined)
    if any(each.sequence not in shown for each in turn.steered):
        raise Fenced("a person sent a message to the turn after its model was called")
    waiting = {each.sequence for each in (*state.pending, *turn.steered)}
    if not shown <= waiting:
        raise Fenced("a message that the model saw was disposed of meanwhile")
