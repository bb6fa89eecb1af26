"""What becomes of the commands of a turn that was ended by an order: the fence stands, and now their claims are looked at.

No claim, and it never starts: whoever claims it now reads the fence behind its claim. A first claim that is older than the
fence, and no outcome that is: it is too late to say that it will not run.
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
        effect = await parts.effects.look(ref, call.pool, ident, done.sequence)
        # As it was when the fence was raised, so that who asks again is told the same.
        ended = 0 < effect.outcome_sequence < done.sequence
        begun = 0 < effect.first_claim < done.sequence
        fate: Literal["ended", "never_starts", "may_have_run"] = (
            "ended" if ended else "may_have_run" if begun else "never_starts"
        )
        found.append(Fate(f"{ref.session}/{ident}", call.tool, fate))
    return found


def _turn(state: SessionState, run_id: int) -> PastTurn | None:
    turns = (*state.history, *(turn for archive in state.archives for turn in archive.turns))
    return next((turn for turn in turns if turn.run_id == run_id), None)
