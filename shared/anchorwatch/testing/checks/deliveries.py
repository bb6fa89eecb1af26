"""Deliveries: each turn's end reaches each channel once, if the kind of channel allows."""

from __future__ import annotations

from collections.abc import Iterator

from anchorwatch.core.records import Kind
from anchorwatch.journal.history import History
from anchorwatch.testing.checks.evidence import Arrivals, Evidence, Violation


def check_deliveries(evidence: Evidence) -> Iterator[Violation]:
    """The ends of turns, compared with what the receivers saw."""
    ends = [each.sequence for each in evidence.history.of_kind(Kind.TURN_ENDED)]
    yield from _ended_once(evidence.history)
    # The last record of a delivery counts.
    states = {each.delivery_id: each.state for each in evidence.history.sent}
    for arrivals in evidence.arrivals:
        for sequence in ends:
            yield from _delivered(arrivals, sequence, states)


def _delivered(arrivals: Arrivals, record: int, states: dict[str, str]) -> Iterator[Violation]:
    beginning = f"{record}-{arrivals.channel}-"
    ids = [id_ for id_ in arrivals.seen if id_.startswith(beginning)]
    state = next((state for id_, state in states.items() if id_.startswith(beginning)), "")
    where = f"the end at {record}, on {arrivals.channel}"
    if not ids and state != "unknown":
        yield Violation("lost", f"not delivered: {where} ({state or 'no record'})")
    if len(ids) > 1:
        yield Violation("duplicated", f"delivered under {len(ids)} ids: {where}")
    if not arrivals.deduplicates and any(arrivals.seen[id_] > 1 for id_ in ids):
        yield Violation("duplicated", f"delivered more than once: {where}")
    if ids and state in ("", "claimed", "failed"):
        yield Violation("lost", f"delivered, but not recorded ({state or 'no record'}): {where}")


def _ended_once(history: History) -> Iterator[Violation]:
    ended: dict[str, str] = {}
    for each in history.sent:
        if each.delivery_id in ended:
            text = f"the delivery {each.delivery_id} ended {ended[each.delivery_id]}, but has another record at {each.sequence}"
            yield Violation("duplicated", text)
        if each.state != "claimed":
            ended[each.delivery_id] = each.state
