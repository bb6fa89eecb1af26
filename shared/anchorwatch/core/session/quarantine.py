"""The anchor of a damaged session: rebuilt where it was lost, and after a repair.

A rebuilt fence is never lower than the journal shows: a run that may have started never starts again (INV-903).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from anchorwatch.core.anchor import Anchor, Fence, Status
from anchorwatch.core.records import Kind
from anchorwatch.core.session.conversation import past_turn, remember
from anchorwatch.core.session.critical import with_lines_of
from anchorwatch.core.session.state import SessionState, Turn
from anchorwatch.core.session.transitions import changed
from anchorwatch.core.session.turn_end import dispose, end_turn
from anchorwatch.core.times import iso

LOST = "its records are unreadable"


@dataclass(frozen=True, slots=True)
class Lost:
    """What follows the last readable anchor.

    ``unreadable``: sequences of the later anchor records, in order; ``runs``: every run in a readable record or a subject.
    """

    unreadable: tuple[int, ...]
    runs: frozenset[int]

    def also(self, count: int, holes: Iterable[tuple[int, int]]) -> Lost:
        """With ``count`` further anchors that the server lost, somewhere in the ``holes`` (first, last) of its stream."""
        places = [at for first, last in holes for at in range(first, min(last, first + count) + 1)][:count]
        return replace(self, unreadable=tuple(sorted({*self.unreadable, *places})))


def rebuilt(base: Anchor, lost: Lost) -> Anchor:
    """The newest anchor that is safe to believe if those after ``base`` are unreadable.

    Each lost anchor may have started a turn, which then counts as started and failed. Its inputs count as consumed only if
    commands prove that the turn acted; otherwise they stay pending for the next turn.
    """
    count = len(lost.unreadable)
    if not count:
        return base
    begun = count // 2 if base.turn else (count + 1) // 2
    run_id = max(base.run_id + begun, *lost.runs, 0)
    fence = Fence(max(base.fence.run, run_id + 1))
    safe = replace(base, generation=base.generation + count, run_id=run_id, fence=fence)
    if run_id == base.run_id:
        return safe
    through = max(base.inputs_through, base.turn.inputs_through if base.turn else 0)
    acted = any(run > base.run_id for run in lost.runs)
    failed = replace(
        safe,
        status="idle" if base.status == "active" else base.status,
        execution_id=None,
        turn=None,
        run_count=base.run_count + run_id - base.run_id + (1 if base.turn else 0),
        last_run_id=run_id,
        last_run_outcome="failed",
        last_run_reason=LOST,
    )
    return dispose(failed, max(through, lost.unreadable[0]) if acted else through)


def repaired(state: SessionState, believed: Anchor, was: Status, reason: str, at_ms: int) -> Anchor:
    """The anchor after a repair of a session that did not run: its turn ends `failed`, and it checks at once.

    ``believed``: the newest anchor that is safe to believe; ``was``: the status before the quarantine. A session that a
    person had paused stays paused.
    """
    after = changed(believed, Kind.REPAIRED)
    ended = end_turn(state, after, "failed", reason, at_ms) if believed.turn else after
    status: Status = "paused" if was == "paused" else "idle"
    return replace(ended, status=status, execution_id=None, next_check_at=iso(at_ms))


def at_rest(state: SessionState, after: Anchor) -> SessionState:
    """The state for a repair's snapshot: the fold of the readable records, with its turn ended as in ``after``.

    Labelled lines of consumed inputs are kept, whether or not a model ever saw them.
    """
    outcome, reason = after.last_run_outcome or "failed", after.last_run_reason
    rested = state._replace(turn=None, anchor=after)
    taken = tuple(each for each in state.pending if not rested.takes(each.sequence))
    turn = state.turn
    if taken:
        turn = turn or Turn(after.last_run_id, "", taken[0].at_ms, 0, 0, ())
        turn = replace(turn, inputs=(*turn.inputs, *taken))
    kept = state._replace(
        turn=None,
        pending=tuple(each for each in state.pending if rested.takes(each.sequence)),
        critical=with_lines_of(state.critical, taken),
    )
    return remember(kept, past_turn(turn, outcome, reason, None)) if turn else kept
