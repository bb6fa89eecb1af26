"""What becomes of the commands of a turn that an order ended. The fence is raised before their claims are read.

A command without an outcome before the fence either never starts or may have run:
- It never starts if it needs a claim and had none: an executor that claims it later reads the fence after its claim.
- It may have run if it was claimed, if the journal may have lost its claim, or if it is a read, which needs no claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.state import PastTurn
from anchorwatch.journal.orders import Done

from anchorwatch_gateway.parts import Parts

TOO_LATE = "it may have run, or may still run until its outcome is recorded"


@dataclass(frozen=True, slots=True)
class Fate:
    """``call``: SESSION/RUN.STEP.N."""

    call: str
    tool: str
    state: Literal["ended", "never_starts", "may_have_run"]

    def to_json(self) -> dict[str, Any]:
        """As programs get it."""
        return {"call": self.call, "tool": self.tool, "note": TOO_LATE}


async def fates(parts: Parts, ref: SessionRef, done: Done) -> list[Fate]:
    """What becomes of each command of the turn that the order at ``done.sequence`` ended.

    Raises:
        Unavailable, Damaged.
    """
    state = done.state or await parts.journal.load(ref, done.sequence)
    turn = _turn(state, done.change.anchor.last_run_id)
    if turn is None or turn.outcome != "cancelled":
        return []
    calls = [
        (CallId(turn.run_id, step.number, call.n), call)
        for step in turn.steps
        for call in step.calls
        if call.state != "rejected"
    ]
    found = []
    for ident, call in calls:
        # As it was when the fence was raised, so that a repeated request gets the same answer.
        effect = await parts.effects.before(ref, call.pool, ident, call.sequence, done.sequence)
        fate: Literal["ended", "never_starts", "may_have_run"]
        if effect.outcome is not None:
            fate = "ended"
        elif effect.first_claim or not call.mutating:
            fate = "may_have_run"
        else:
            fate = "never_starts"
        found.append(Fate(f"{ref.session}/{ident}", call.tool, fate))
    return found


def _turn(state: SessionState, run_id: int) -> PastTurn | None:
    turns = (*state.history, *(turn for archive in state.archives for turn in archive.turns))
    return next((turn for turn in turns if turn.run_id == run_id), None)
