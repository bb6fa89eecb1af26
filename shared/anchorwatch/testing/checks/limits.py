"""No turn began against its agent's rate limits, except on an urgent order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from anchorwatch.core.records import Kind
from anchorwatch.core.session.pacing import Rate, hurries
from anchorwatch.core.times import from_iso
from anchorwatch.testing.checks.evidence import Evidence, Violation


def check_limits(evidence: Evidence, rate: Rate) -> Iterator[Violation]:
    """``rate``: the limits in force during the whole run."""
    history = evidence.history
    for before, begun in pairwise(history.anchors):
        turn = begun.anchor.turn
        if begun.kind != Kind.ACQUIRED or turn is None:
            continue
        held = rate.held(before.anchor, from_iso(turn.started_at))
        taken = history.taken(begun.anchor.run_id)
        if any(hurries(wake) for wake in taken) or min(held.urgent_ms, held.others_ms) == 0:
            continue
        yield Violation(
            "guessed", f"run {begun.anchor.run_id} began at {turn.started_at}, against its rate limits"
        )
