"""Whether this planner may take over a turn that another one holds.

Only with evidence that the holder is not at work on it (facts: an ack proves nothing, and two planners must not
take over from each other for ever):

- the message that woke the holder was delivered again: the holder no longer extends it;
- an outcome newer than the holder's acquire came here and settled the step: whoever sees that may go on;
- the session was resumed since: whoever held the turn when it was paused put it down;
- the holder is a former incarnation of this very instance, or its presence is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from anchorwatch.bus.port import Stored
from anchorwatch.core.session.state import Turn
from anchorwatch.topology.subjects import parse_register

CauseKind = Literal["in", "done", "gate", "control", "resumed", "tick", "sweep", "start", "retry"]


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a session is looked at: a journal message (``sequence``), or none (0). ``attempt`` counts its deliveries.

    ``stored``: the message itself, where it came by itself. ``rang_ms``: of a tick, when it came by the server's clock.
    ``again``: a look has seen to it, by a turn that has ended; only what stands behind that end is of interest yet.
    """

    kind: CauseKind
    sequence: int = 0
    attempt: int = 1
    stored: Stored | None = None
    rang_ms: int = 0
    again: bool = False

    def seen_to(self) -> Cause:
        """The same, after the turn that was begun or ended by it."""
        return replace(self, stored=None, again=True)


def takeover_reason(turn: Turn, causes: Sequence[Cause], *, holder_gone: bool) -> str | None:
    """Why the turn may be taken over; None when it may not.

    A message is evidence once for each delivery: not again, where a look has seen to it.
    """
    if holder_gone:
        return "its planner is gone"
    for cause in (each for each in causes if not each.again):
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
