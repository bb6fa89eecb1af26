"""Why a planner makes a pass over a session, and whether it may take over a turn that another planner holds.

A takeover needs evidence that the holder does not work on the turn. An ack proves nothing, and two planners must not take over
from each other for ever. This is evidence:

- the message that woke the holder was delivered again: the holder no longer extends it;
- an outcome newer than the holder's acquire was delivered here and settled the step: the planner that has it continues;
- the session was resumed since: the planner that held the turn released it at the pause;
- the holder is an earlier incarnation of this instance, or its presence has expired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from anchorwatch.bus.port import Stored
from anchorwatch.core.session.state import Turn
from anchorwatch.topology.subjects import parse_register

REPLACED_RETRY_S = 1.0
CauseKind = Literal["in", "done", "gate", "control", "resumed", "tick", "sweep", "start", "retry"]


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of a pass: a journal message (``sequence``), or none (0). ``attempt`` counts its deliveries.

    ``stored``: the message, if it was delivered. ``fired_ms``: of a tick, when it fired by the server's clock. ``handled``: a
    turn that has ended has handled it; the pass only reads past that end.
    """

    kind: CauseKind
    sequence: int = 0
    attempt: int = 1
    stored: Stored | None = None
    fired_ms: int = 0
    handled: bool = False

    def after_turn(self) -> Cause:
        """The same cause, after the turn that it started or ended."""
        return replace(self, stored=None, handled=True)


def takeover_reason(turn: Turn, causes: Sequence[Cause], *, holder_gone: bool) -> str | None:
    """The reason why the turn may be taken over; None if it may not.

    Each delivery of a message is evidence once: not after a turn has handled it.
    """
    if holder_gone:
        return "its planner is gone"
    for cause in (each for each in causes if not each.handled):
        if cause.sequence and cause.sequence == turn.woken_by and cause.attempt > 1:
            return "the message that its planner held was delivered again"
        settles = cause.kind == "done" and _is_of(turn, cause)
        if settles and cause.sequence > turn.held_since and turn.steps and turn.settled:
            return f"the outcome (seq {cause.sequence}) settled the step"
        if cause.kind == "resumed" and cause.sequence > turn.held_since and turn.settled:
            return "it was resumed"
    return None


def _is_of(turn: Turn, cause: Cause) -> bool:
    """An outcome of an earlier turn settles nothing in this one."""
    return cause.stored is None or parse_register(cause.stored.subject).call.run == turn.run_id


def holder(execution_id: str) -> tuple[str, str]:
    """(instance, incarnation) in an execution id."""
    instance, _, incarnation = execution_id.rpartition(":")
    return instance, incarnation


@dataclass(frozen=True, slots=True)
class LeftToHolder:
    """Another planner continues the turn. It holds message ``by``, which gets no answer here: neither an ack nor a nak.

    The other messages are delivered again after ``delay_s``; None: they are acked.
    """

    by: int
    delay_s: float | None


def left_to_holder(turn: Turn, causes: Sequence[Cause]) -> LeftToHolder:
    """The result of a pass while another planner continues the turn. That planner reads the session again at the turn's end.

    The holder answers its own message. An ack here would lose the message if the holder dies; a nak would have it delivered
    again, which would be evidence against a planner that is at work.
    """
    replaced = any(not each.handled and (each.kind == "done" or each.attempt > 1) for each in causes)
    return LeftToHolder(turn.woken_by, REPLACED_RETRY_S if replaced else None)
