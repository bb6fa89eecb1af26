"""Whether a session goes in circles: turn after turn the same decision on the same sight, and nothing has changed by it."""

from __future__ import annotations

import json
from collections.abc import Iterable

from anchorwatch.core.session.state import SessionState, Step

CIRCLES_MAX = 5
"""So often in a row is the same decision on the same sight no progress any more."""

Round = tuple[str, tuple[tuple[str, str], ...]]


def circles(state: SessionState, acting_tools: frozenset[str]) -> int:
    """How many turns in a row, the running one with them, saw the same at first and decided the same about it.

    0: no action. ``acting_tools``: those that change the real system; repeated observation is not a cycle.
    """
    turn = state.turn
    this = _round(turn.steps, acting_tools) if turn else None
    if this is None:
        return 0
    count = 1
    for past in reversed(state.history):
        if _round(past.steps, acting_tools) != this:
            break
        count += 1
    return count


def _round(steps: Iterable[Step], acting_tools: frozenset[str]) -> Round | None:
    """What a turn saw at first, and what it did; None where it did nothing, or saw nothing."""
    steps = tuple(steps)
    seen = steps[0].observation if steps else None
    done = tuple(
        (call.tool, json.dumps(dict(call.args), sort_keys=True))
        for step in steps
        for call in step.calls
        if call.tool in acting_tools and call.state != "rejected"
    )
    return (seen.digest, done) if seen and seen.digest and done else None
