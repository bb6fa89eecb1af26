"""The anchor of a session whose journal is damaged: what it says while nothing runs, and what is said where it was lost.

A fence is never invented lower than anything that the journal shows: a run, once it may have begun, is never begun again.
"""

from __future__ import annotations

from dataclasses import dataclass

from anchorwatch.core.anchor import Anchor, Fence
from anchorwatch.core.session.rest import disposed

LOST = "what it recorded cannot be read"


def quarantined(anchor: Anchor) -> Anchor:
    """The anchor that refuses to run: nothing of its turn, and of none before it, may start any more."""
    fence = Fence(run=max(anchor.fence.run, anchor.run_id + 1))
    return anchor.model_copy(update={"status": "quarantined", "fence": fence})


@dataclass(frozen=True, slots=True)
class Lost:
    """What stands behind the last anchor that can be read.

    ``unreadable``: sequences of the anchor records behind it, in order; ``runs``: every run that a readable record
    or a subject names.
    """

    unreadable: tuple[int, ...]
    runs: frozenset[int]


def rebuilt(base: Anchor, lost: Lost) -> Anchor:
    """The newest anchor that is safe to believe, where those behind ``base`` cannot be read.

    Each of the lost may have begun a turn: where that cannot be told, it counts as begun, and as failed. Its inputs
    count as taken only where commands show that it did something; else they wait for the next turn.
    """
    count = len(lost.unreadable)
    if not count:
        return base
    begun = count // 2 if base.turn else (count + 1) // 2
    run_id = max(base.run_id + begun, *lost.runs, 0)
    changes: dict[str, object] = {"generation": base.generation + count, "run_id": run_id}
    if run_id > base.run_id:
        through = max(base.inputs_through, base.turn.inputs_through if base.turn else 0)
        acted = any(run > base.run_id for run in lost.runs)
        changes |= {
            "status": "idle" if base.status == "active" else base.status,
            "execution_id": None,
            "turn": None,
            "run_count": base.run_count + run_id - base.run_id + (1 if base.turn else 0),
            "last_run_id": run_id,
            "last_run_outcome": "failed",
            "last_run_reason": LOST,
            **disposed(base, max(through, lost.unreadable[0]) if acted else through),
        }
    fence = max(base.fence.run, run_id + 1)
    return base.model_copy(update={**changes, "fence": Fence(run=fence)})
