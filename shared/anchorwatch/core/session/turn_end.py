"""What every end of a turn sets in the anchor, and what every disposal of inputs sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from anchorwatch.core.anchor import Anchor, RunOutcome
from anchorwatch.core.session.state import Input, SessionState
from anchorwatch.core.session.wakes import tally
from anchorwatch.core.times import from_iso, iso

REASON_CHARS_MAX = 500


def end_turn(
    state: SessionState,
    anchor: Anchor,
    outcome: RunOutcome,
    reason: str,
    at_ms: int,
    joined: Iterable[int] = (),
) -> Anchor:
    """The anchor without its running turn. ``joined``: sequences of inputs that its last step consumed."""
    stuck = outcome in ("unresolved", "failed", "over_budget")
    moved = outcome in ("success", "no_action")
    through = anchor.turn.inputs_through if anchor.turn else 0
    of_turn = state.turn.joined if state.turn else ()
    ended = replace(
        anchor,
        execution_id=None,
        turn=None,
        run_count=anchor.run_count + 1,
        last_run_id=anchor.run_id,
        last_run_timestamp=iso(at_ms),
        last_run_outcome=outcome,
        last_run_reason=reason[:REASON_CHARS_MAX],
        runs_without_progress=0 if moved else anchor.runs_without_progress + int(stuck),
    )
    return dispose(ended, through, (*of_turn, *joined))


def dispose(anchor: Anchor, through: int, joined: Iterable[int] = ()) -> Anchor:
    """The anchor after all inputs up to ``through``, and ``joined`` beyond it, have their disposition."""
    through = max(anchor.inputs_through, through)
    beyond = sorted({each for each in (*anchor.inputs_joined, *joined) if each > through})
    return replace(anchor, inputs_through=through, inputs_joined=tuple(beyond))


def check_again(anchor: Anchor, at_ms: int, check_in_ms: int) -> Anchor:
    """The anchor with its next check after a turn that a person ended: the scheduled one if it is in the future.

    One in the past may have started that very turn; it does not start another.
    """
    scheduled_ms = from_iso(anchor.next_check_at) if anchor.next_check_at else 0
    return anchor if scheduled_ms > at_ms else replace(anchor, next_check_at=iso(at_ms + check_in_ms))


def refuse_inputs(anchor: Anchor, inputs: Sequence[Input]) -> Anchor:
    """The anchor after these inputs, the oldest pending ones, were refused."""
    refused = replace(anchor, inputs_refused=anchor.inputs_refused + len(inputs))
    return dispose(refused, inputs[-1].sequence)


def refused_summary(inputs: Sequence[Input]) -> dict[str, Any]:
    """What a record says of the inputs that it refuses."""
    return {"count": len(inputs), "through": inputs[-1].sequence, "kinds": dict(tally(inputs))}
