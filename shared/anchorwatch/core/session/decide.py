"""State + command -> events. Refusing is an answer: `Refused` with the reason and the way out.

What each anchor change sets is the table of DESIGN section 2 ("Generation and fence"), kept in docs/wire-format.md:

| change       | run_id | generation | fence.run  | status |
| ------------ | ------ | ---------- | ---------- | ------ |
| acquire      | + 1    | + 1        |            | active |
| takeover     |        | + 1        |            | active |
| end of turn  |        |            | run_id + 1 | idle   |
| cancel/delete|        | + 1        | run_id + 1 | idle/deleted |
| pause        |        |            |            | paused |
| directives   |        |            |            |        |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from anchorwatch.core.anchor import Anchor, Fence, PromptProof, RunOutcome, TurnMark
from anchorwatch.core.effect.intent import intent_key
from anchorwatch.core.errors import Fenced, NotFound, Refused, SessionDeleted
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session.events import (
    AnchorChanged,
    CommandDecided,
    Compacted,
    PlannerEvent,
    StepDecided,
    StepHead,
)
from anchorwatch.core.session.state import SessionState, Summary, Turn, Unsettled
from anchorwatch.core.times import iso


@dataclass(frozen=True, slots=True)
class Create:
    """Make the session."""

    ref: SessionRef
    agent: str
    objectives: tuple[str, ...]
    constraints: tuple[str, ...]
    at_ms: int
    by: str


@dataclass(frozen=True, slots=True)
class Acquire:
    """Start a turn: take all inputs up to ``through``. ``woken_by``: sequence of the message in hand (0: a sweep)."""

    turn_id: str
    agent: str
    execution_id: str
    woken_by: int
    through: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Go on with a turn whose planner is gone, or that another planner's outcome belongs to."""

    execution_id: str
    woken_by: int
    at_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call that passed the planner's own checks and becomes a command. ``verb``: its intent (empty: the tool's name)."""

    n: int
    tool: str
    args: Mapping[str, Any]
    label: str
    pool: str
    resource: str
    verb: str = ""
    mutating: bool = True


@dataclass(frozen=True, slots=True)
class CommitStep:
    """Decide a step that asks for calls."""

    execution_id: str
    head: StepHead
    calls: tuple[PlannedCall, ...]


@dataclass(frozen=True, slots=True)
class EndTurn:
    """Bring the turn to rest. ``head``: its last step, where it had one."""

    execution_id: str
    outcome: RunOutcome
    reason: str
    facts: Mapping[str, Any]
    next_check_at_ms: int
    head: StepHead | None
    prompt: PromptProof | None
    at_ms: int


@dataclass(frozen=True, slots=True)
class Compact:
    """Let ``summary`` stand for the oldest turns that the conversation shows; ``tokens`` of the request, before and after."""

    execution_id: str
    summary: Summary
    tokens: tuple[int, int]
    because: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Control:
    """What is ordered: `paused`, `resumed`, `cancelled` (with ``turn_id``), `deleted`; `quarantined` by the mesh itself."""

    kind: str
    by: str
    at_ms: int
    reason: str = ""
    turn_id: str | None = None


@dataclass(frozen=True, slots=True)
class Direct:
    """Replace objectives and constraints; only people do."""

    by: str
    at_ms: int
    objectives: tuple[str, ...]
    constraints: tuple[str, ...]


Command = Create | Acquire | TakeOver | CommitStep | EndTurn | Compact | Control | Direct


def decide(state: SessionState, command: Command) -> Sequence[PlannerEvent]:
    """The events that carry the command out.

    Raises:
        Refused: the session's state does not allow it. Fenced: ``execution_id`` does not hold the session (any more).
        NotFound: there is no session. SessionDeleted.
    """
    if isinstance(command, Create):
        return _create(state, command)
    anchor = _living(state)
    match command:
        case Acquire():
            return [_acquire(anchor, command)]
        case TakeOver():
            return [_take_over(anchor, command)]
        case CommitStep():
            return _commit_step(state, _held(state, anchor, command.execution_id), anchor, command)
        case EndTurn():
            return [_end(anchor, _held(state, anchor, command.execution_id), command)]
        case Compact():
            _held(state, anchor, command.execution_id)
            return [_compact(state, command)]
        case Control():
            return [_control(anchor, command)]
        case Direct():
            after = _with(anchor, objectives=command.objectives, constraints=command.constraints)
            return [AnchorChanged(Kind.DIRECTIVES, after, command.at_ms, by=command.by)]
        case _:
            assert_never(command)


def _with(anchor: Anchor, **changes: Any) -> Anchor:  # noqa: ANN401 - the anchor's own fields
    return anchor.model_copy(update=changes)


def _living(state: SessionState) -> Anchor:
    if state.anchor is None:
        raise NotFound("there is no such session", hint="`anchorwatch sessions` lists them")
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
                f"the session {command.ref.session} was deleted; its name is not used again",
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
    return [AnchorChanged(Kind.CREATED, anchor, command.at_ms, by=command.by)]


def _acquire(anchor: Anchor, command: Acquire) -> AnchorChanged:
    if anchor.status != "idle":
        raise Refused(f"the session is {anchor.status}")
    run_id = anchor.run_id + 1
    after = _with(
        anchor,
        status="active",
        agent=command.agent,
        run_id=run_id,
        generation=anchor.generation + 1,
        execution_id=command.execution_id,
        turn=TurnMark(
            id=command.turn_id,
            started_at=iso(command.at_ms),
            woken_by=command.woken_by,
            inputs_through=max(command.through, anchor.inputs_through),
        ),
    )
    return AnchorChanged(Kind.ACQUIRED, after, command.at_ms, by=command.execution_id)


def _take_over(anchor: Anchor, command: TakeOver) -> AnchorChanged:
    if anchor.status != "active" or anchor.turn is None:
        raise Refused(f"the session is {anchor.status}: there is no turn to take over")
    after = _with(
        anchor,
        generation=anchor.generation + 1,
        execution_id=command.execution_id,
        turn=anchor.turn.model_copy(update={"woken_by": command.woken_by}),
    )
    return AnchorChanged(
        Kind.TAKEN_OVER, after, command.at_ms, reason=command.reason, by=command.execution_id
    )


def _commit_step(
    state: SessionState, turn: Turn, anchor: Anchor, command: CommitStep
) -> Sequence[PlannerEvent]:
    if not turn.settled:
        raise Refused("the step before has commands without an outcome")
    if command.head.step != len(turn.steps) + 1:
        raise Fenced(f"step {command.head.step} was decided on an older state")
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
        event = _command(command.head, call, turn, anchor)
        after = _before(unsettled, call)
        events.append(replace(event, effect_key=key, after=after, head=None if events else command.head))
        intents[intent] += 1
        if call.mutating:
            unsettled.append(Unsettled(event.call, event.pool, event.resource))
    return events


def _command(head: StepHead, call: PlannedCall, turn: Turn, anchor: Anchor) -> CommandDecided:
    seen = head.observation
    return CommandDecided(
        call=CallId(anchor.run_id, head.step, call.n),
        turn_id=turn.turn_id,
        generation=anchor.generation,
        agent=anchor.agent,
        pool=call.pool,
        tool=call.tool,
        args=call.args,
        resource=call.resource,
        label=call.label,
        observation_digest=seen.digest if seen else "",
        observation_at_ms=seen.at_ms if seen else 0,
        verb=call.verb,
        mutating=call.mutating,
    )


def _before(unsettled: Sequence[Unsettled], call: PlannedCall) -> tuple[Unsettled, ...]:
    """What must have a definite outcome before this call runs. All of one resource, since any of them may end `unknown`."""
    if not call.mutating or not call.resource:
        return ()
    return tuple(each for each in unsettled if each.resource == call.resource)


def _compact(state: SessionState, command: Compact) -> Compacted:
    through = command.summary.through_run
    before = state.summary.through_run if state.summary else 0
    if through <= before or all(past.run_id != through for past in state.history):
        raise Fenced(f"the conversation through run {through} was compacted on an older state")
    return Compacted(command.summary, command.tokens, command.because, command.usage, state.snapshot_sequence)


def _rest(anchor: Anchor, turn_through: int, outcome: RunOutcome, reason: str, at_ms: int) -> dict[str, Any]:
    """What every end of a turn sets, whoever ends it."""
    stuck = outcome in ("unresolved", "failed", "over_budget")
    moved = outcome in ("success", "no_action")
    return {
        "execution_id": None,
        "turn": None,
        "fence": Fence(run=anchor.run_id + 1),
        "run_count": anchor.run_count + 1,
        "last_run_id": anchor.run_id,
        "last_run_timestamp": iso(at_ms),
        "last_run_outcome": outcome,
        "last_run_reason": reason[:500],
        "runs_without_progress": 0 if moved else anchor.runs_without_progress + int(stuck),
        "inputs_through": max(anchor.inputs_through, turn_through),
    }


def _end(anchor: Anchor, turn: Turn, command: EndTurn) -> AnchorChanged:
    if not turn.settled:
        raise Refused("the turn has commands without an outcome")
    through = anchor.turn.inputs_through if anchor.turn else anchor.inputs_through
    after = _with(
        anchor,
        **_rest(anchor, through, command.outcome, command.reason, command.at_ms),
        status="idle",
        facts=dict(command.facts),
        next_check_at=iso(command.next_check_at_ms),
        prompt=command.prompt or anchor.prompt,
    )
    return AnchorChanged(
        Kind.TURN_ENDED,
        after,
        command.at_ms,
        reason=command.reason,
        by=command.execution_id,
        head=command.head,
    )


def _control(anchor: Anchor, command: Control) -> AnchorChanged:
    match command.kind:
        case Kind.PAUSED:
            if anchor.status not in ("idle", "active"):
                raise Refused(f"the session is {anchor.status}")
            after = _with(anchor, status="paused")
        case Kind.RESUMED:
            if anchor.status not in ("paused", "quarantined"):
                raise Refused(f"the session is {anchor.status}, not paused")
            after = _with(anchor, status="active" if anchor.turn else "idle")
        case Kind.QUARANTINED:
            after = _with(anchor, status="quarantined")
        case Kind.CANCELLED:
            if anchor.turn is None or (command.turn_id and command.turn_id != anchor.turn.id):
                raise Refused("that turn is not running", hint="turn_not_active")
            rest = _rest(anchor, anchor.turn.inputs_through, "cancelled", command.reason, command.at_ms)
            status = "paused" if anchor.status == "paused" else "idle"
            after = _with(anchor, **rest, status=status, generation=anchor.generation + 1)
        case Kind.DELETED:
            through = anchor.turn.inputs_through if anchor.turn else anchor.inputs_through
            ended = _rest(anchor, through, "cancelled", command.reason, command.at_ms) if anchor.turn else {}
            fence = Fence(run=anchor.run_id + 1)
            after = _with(
                anchor,
                **{
                    **ended,
                    "fence": fence,
                    "status": "deleted",
                    "generation": anchor.generation + 1,
                    "next_check_at": None,
                },
            )
        case _:
            raise Refused(f"{command.kind!r} is no control")
    return AnchorChanged(command.kind, after, command.at_ms, reason=command.reason, by=command.by)
