"""What a planner does with the session as it knows it: the decisions of `look.py` and `think.py`, by the product's own code."""

from __future__ import annotations

from dataclasses import replace

from anchorwatch.bus.port import Stored
from anchorwatch.core.anchor import Fence
from anchorwatch.core.errors import AnchorWatchError, Fenced
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Acquire, Command, CommitStep, EndTurn, PlannedCall, TakeOver
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.events import AnchorChanged, StepHead
from anchorwatch.core.session.joining import joining
from anchorwatch.core.session.wakes import Due, Windows, due
from anchorwatch.topology.subjects import SessionSubjects
from anchorwatch_planner.sessions import is_closed
from anchorwatch_planner.takeover import Cause, holder, left_to_holder, takeover_reason

from tests.model.journal import (
    Record,
    last_of,
    number_of,
    record_at,
    session_known,
    with_record,
)
from tests.model.rules import Setup
from tests.model.world import (
    Planner,
    World,
    Write,
    planner_write,
)

NEVER_MS = 10**12


def name(index: int, planner: Planner) -> str:
    """Its execution id."""
    return f"planner-{index}:{planner.life}"


def known(world: World, planner: Planner) -> SessionState:
    return session_known(world.journal, planner.read, planner.own)


def look(setup: Setup, world: World, me: str, planner: Planner) -> Planner:
    """What `TurnPlanner._round` does with the state that the planner knows."""
    state = known(world, planner)
    status = state.anchor.status if state.anchor else "none"
    if status == "idle" and isinstance(due(state, NEVER_MS - 1, Windows(0, 0)), Due):
        return _rests(setup, world, me, planner, state)
    if status == "active" and state.turn is not None and state.turn.settled:
        return _runs(setup, world, me, planner, state)
    return planner._replace(phase="acks")


def supposes(setup: Setup, world: World, me: str, planner: Planner) -> Planner | None:
    """The planner that begins a turn on what it remembers and the inputs up to the message in hand; None: it must read."""
    state, at = known(world, planner), planner.cause[1]
    if not planner.read or at <= state.head or not is_closed(state):
        return None
    for sequence in range(planner.read + 1, at + 1):
        if record_at(world.journal, sequence).register == "in":
            state = with_record(state, world.journal, sequence)
    state = state.reading_through(at)
    if not isinstance(due(state, NEVER_MS - 1, Windows(0, 0)), Due):
        return None
    # Where its write lands it knows all up to there: that is what the fence proves.
    begins = _rests(setup, world, me, planner._replace(supposed=max(at, planner.read)), state)
    if begins.write is not None and not setup.cures.proves_supposed:
        newest = last_of(world.journal, begins.write.family)
        return begins._replace(write=begins.write._replace(expected=newest))
    return begins


def _rests(setup: Setup, world: World, me: str, planner: Planner, state: SessionState) -> Planner:
    if not planner.cause[1]:
        tick = f"tick-{state.pending[0].sequence}"
        write = Write(tick, 0, (number_of(Record("in", tick)),))
        return planner._replace(phase="writes", write=write)
    run = state.anchor.run_id + 1 if state.anchor else 1
    return _decides(
        setup, world, planner, state, Acquire(f"t{run}", "a@1", me, planner.cause[1], state.read_through, 0)
    )


def _runs(setup: Setup, world: World, me: str, planner: Planner, state: SessionState) -> Planner:
    turn, anchor = state.turn, state.anchor
    if turn is None or anchor is None:
        raise AssertionError("an active session has a turn")
    if anchor.execution_id == me:
        return _decides(setup, world, planner, state, _thinks(setup, state, me))
    kind, at, attempt = planner.cause
    cause = Cause(kind, at, attempt, _stored(world, at, kind))  # type: ignore[arg-type]  # one of `KINDS`
    instance, life = holder(anchor.execution_id or "")
    other = world.planners[int(instance[-1])]
    gone = int(life) < other.life or other.phase == "dead"
    spent = planner.spent and setup.cures.evidence_counts_once
    reason = takeover_reason(turn, [] if spent else [cause], holder_gone=gone)
    if reason is not None:
        return _decides(setup, world, planner, state, TakeOver(me, at, 0, reason))
    left = left_to_holder(turn, [cause])
    if left.by == at and setup.cures.replaced_keeps_message:
        return planner._replace(phase="leaves")
    return planner._replace(
        phase="keeps" if left.delay_s is not None and setup.cures.replaced_keeps_message else "acks"
    )


def _stored(world: World, at: int, kind: str) -> Stored | None:
    call = record_at(world.journal, at).call if kind == "done" else None
    if call is None:
        return None
    return Stored(SessionSubjects(SessionRef("default", "s")).effect("default", call, "done"), at, 0, b"")


def _thinks(setup: Setup, state: SessionState, me: str) -> Command:
    """The model's part: one step of commands, then the end."""
    turn, joined = state.turn, tuple(each.sequence for each in joining(state))
    if turn is not None and not turn.steps:
        calls = tuple(PlannedCall(n, "tool", {}, "", "default", "") for n in range(1, setup.commands + 1))
        return CommitStep(me, StepHead(1, "", None, None, calls=len(calls), joined=joined), calls)
    return EndTurn(me, "success", "", {}, NEVER_MS, StepHead(2, "", None, None, joined=joined), None, 0)


def _decides(setup: Setup, world: World, planner: Planner, state: SessionState, command: Command) -> Planner:
    try:
        events = tuple(_without_cures(setup, state, event) for event in decide(state, command))
    except Fenced:
        return planner._replace(phase="reads")
    except AnchorWatchError:
        # An order came between the reading and the deciding; in this model both are one moment.
        raise AssertionError("what was just read allows it") from None
    return planner._replace(phase="writes", write=planner_write(setup, world.journal, state.head, events))


def _without_cures(setup: Setup, state: SessionState, event: object) -> object:
    if not isinstance(event, AnchorChanged) or event.anchor.turn is None or state.anchor is None:
        return event
    anchor = event.anchor
    if not setup.cures.pins_inputs and event.kind == "acquired":
        mark = replace(event.anchor.turn, inputs_through=state.anchor.inputs_through)
        anchor = replace(anchor, turn=mark)
    if not setup.cures.takeover_leaves_fence and event.kind == "taken_over":
        anchor = replace(anchor, fence=Fence(run=anchor.run_id + 1))
    return replace(event, anchor=anchor)
