"""The chain of the planner's records, and the permitted changes from one anchor to the next."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from anchorwatch.core.anchor import Anchor
from anchorwatch.core.emergency import change_of
from anchorwatch.core.records import Kind
from anchorwatch.core.session.transitions import TRANSITIONS
from anchorwatch.journal.history import AnchorRecord, History
from anchorwatch.testing.checks.evidence import Evidence, Violation


def check_anchors(evidence: Evidence) -> Iterator[Violation]:
    """Chain, generation, fence, and the turn that an anchor names."""
    yield from _chain(evidence.history)
    for before, after in pairwise(evidence.history.anchors):
        yield from _generation(before, after)
        yield from _decreased(before, after)
        yield from _turn(before, after)
        yield from _emergency(before, after)


def _chain(history: History) -> Iterator[Violation]:
    digest = ""
    for recorded in history.chain:
        if recorded.previous != digest:
            yield Violation(
                "lost", f"the planner record at {recorded.sequence} does not follow the previous one"
            )
        digest = recorded.digest


def _generation(before: AnchorRecord, after: AnchorRecord) -> Iterator[Violation]:
    grown = after.anchor.generation - before.anchor.generation
    # A quarantine that rebuilds a lost anchor, and a repair, may skip generations.
    if grown != TRANSITIONS[after.kind].generation and after.kind not in (Kind.QUARANTINED, Kind.REPAIRED):
        yield Violation("lost", f"the generation grew by {grown} at {after.sequence} ({after.kind})")


def _decreased(before: AnchorRecord, after: AnchorRecord) -> Iterator[Violation]:
    old, new = _marks(before.anchor), _marks(after.anchor)
    for name in old:
        if new[name] < old[name]:
            yield Violation("lost", f"{name} decreased at {after.sequence} ({after.kind})")


def _marks(anchor: Anchor) -> dict[str, int]:
    return {
        "the fence": anchor.fence.run,
        "the count of ended turns": anchor.run_count,
        "the last run": anchor.last_run_id,
        "the mark of consumed inputs": anchor.inputs_through,
        "the count of resets": anchor.reset_count,
    }


def _turn(before: AnchorRecord, after: AnchorRecord) -> Iterator[Violation]:
    old, new = before.anchor, after.anchor
    ended = new.run_count - old.run_count
    if ended > 1:
        yield Violation("lost", f"{ended} turns ended at once at {after.sequence}")
    if ended == 1 and (old.turn is None or new.last_run_id != old.run_id or new.fence.run != old.run_id + 1):
        yield Violation(
            "duplicated",
            f"run {new.last_run_id} ended at {after.sequence} but was not running, or set no fence",
        )
    if after.kind == Kind.ACQUIRED and old.turn is not None:
        yield Violation(
            "lost", f"run {new.run_id} began at {after.sequence} while run {old.run_id} was running"
        )
    if after.kind == Kind.TAKEN_OVER and _turn_identity(old) != _turn_identity(new):
        yield Violation("lost", f"the takeover at {after.sequence} changed the turn")


_MAY_CHANGE_EMERGENCY = {
    Kind.EMERGENCY_OBSERVED,
    Kind.EMERGENCY_ENDED,
    Kind.DELETED,
    Kind.QUARANTINED,
    Kind.REPAIRED,
}


def _emergency(before: AnchorRecord, after: AnchorRecord) -> Iterator[Violation]:
    """An emergency is raised, changed and ended by records of their own, once each: people are notified of these."""
    change = change_of(before.anchor.emergency, after.anchor.emergency)
    if change is not None and after.kind not in _MAY_CHANGE_EMERGENCY:
        yield Violation("lost", f"the emergency is {change} at {after.sequence} ({after.kind})")
    if after.kind == Kind.EMERGENCY_OBSERVED and change is None:
        yield Violation("duplicated", f"the emergency is unchanged at {after.sequence}")


def _turn_identity(anchor: Anchor) -> object:
    """The parts of a turn that a takeover must not change."""
    turn = anchor.turn
    return (anchor.run_id, anchor.fence, turn and (turn.id, turn.started_at, turn.inputs_through))
