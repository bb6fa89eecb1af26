"""What every end of a turn sets in the anchor, whoever ends it; and what every change of what waits does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from anchorwatch.core.anchor import Anchor, Fence, RunOutcome
from anchorwatch.core.session.state import Input, SessionState
from anchorwatch.core.session.wakes import tally
from anchorwatch.core.times import from_iso, iso

REASON_CHARS_MAX = 500


def rest(
    state: SessionState,
    anchor: Anchor,
    outcome: RunOutcome,
    reason: str,
    at_ms: int,
    joined: Iterable[int] = (),
) -> dict[str, Any]:
    """The fields that the end of the running turn changes. ``joined``: inputs that its last step took, beyond those before."""
    stuck = outcome in ("unresolved", "failed", "over_budget")
    moved = outcome in ("success", "no_action")
    through = anchor.turn.inputs_through if anchor.turn else 0
    of_turn = state.turn.joined if state.turn else ()
    return {
        "execution_id": None,
        "turn": None,
        "fence": Fence(run=anchor.run_id + 1),
        "run_count": anchor.run_count + 1,
        "last_run_id": anchor.run_id,
        "last_run_timestamp": iso(at_ms),
        "last_run_outcome": outcome,
        "last_run_reason": reason[:REASON_CHARS_MAX],
        "runs_without_progress": 0 if moved else anchor.runs_without_progress + int(stuck),
        **disposed(anchor, through, (*of_turn, *joined)),
    }


def disposed(anchor: Anchor, through: int, joined: Iterable[int] = ()) -> dict[str, Any]:
    """The fields that say which inputs wait no longer: all up to ``through``, and ``joined`` beyond that."""
    through = max(anchor.inputs_through, through)
    beyond = sorted({each for each in (*anchor.inputs_joined, *joined) if each > through})
    return {"inputs_through": through, "inputs_joined": tuple(beyond)}


def look_again(anchor: Anchor, at_ms: int, check_in_ms: int) -> dict[str, Any]:
    """The next check after a turn that a person ended: the standing one where it lies ahead.

    One that lies behind may have started that very turn; it will not start another.
    """
    standing_ms = from_iso(anchor.next_check_at) if anchor.next_check_at else 0
    return {} if standing_ms > at_ms else {"next_check_at": iso(at_ms + check_in_ms)}


def refused(anchor: Anchor, inputs: Sequence[Input]) -> dict[str, Any]:
    """The fields that the refusal of these inputs changes, the oldest that wait."""
    count = anchor.inputs_refused + len(inputs)
    return {**disposed(anchor, inputs[-1].sequence), "inputs_refused": count}


def told_of(inputs: Sequence[Input]) -> dict[str, Any]:
    """What a record says of the inputs that it refuses."""
    return {"count": len(inputs), "through": inputs[-1].sequence, "kinds": dict(tally(inputs))}
