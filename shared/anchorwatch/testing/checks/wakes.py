"""The wake-up ledger is complete: every accepted wake-up is pending or has exactly one disposition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from anchorwatch.core.records import Kind
from anchorwatch.core.session.apply import Recorded
from anchorwatch.core.session.events import InputAccepted, OutcomeRecorded
from anchorwatch.core.session.ledger import Ledger, read_ledger
from anchorwatch.core.session.transitions import CONTROLS
from anchorwatch.journal.history import History
from anchorwatch.testing.checks.evidence import Evidence, Violation


def ledger_of(history: History) -> Ledger:
    """The ledger of a session, read from its history."""
    records = [
        *(Recorded(each.sequence, InputAccepted(each)) for each in history.inputs),
        *(
            Recorded(
                each.sequence,
                OutcomeRecorded(each.outcome.call, each.outcome.state, "", {}, each.outcome.durable),
            )
            for each in history.outcomes
        ),
        *history.chain,
    ]
    return read_ledger(sorted(records, key=lambda each: each.sequence))


def check_wakes(evidence: Evidence) -> Iterator[Violation]:
    """Pending and disposed wake-ups are all the accepted ones, and each run in a disposition was begun."""
    history = evidence.history
    ledger = ledger_of(history)
    controls = [each.sequence for each in history.anchors if each.kind in CONTROLS]
    accepted = Counter(
        [
            *(each.sequence for each in history.inputs),
            *(each.sequence for each in history.outcomes),
            *controls,
        ]
    )
    for sequence in ledger.twice:
        yield Violation("duplicated", f"the wake-up at {sequence} has two dispositions")
    if set(accepted) != set(ledger.wakes):
        odd = sorted(set(accepted) ^ set(ledger.wakes))
        yield Violation("lost", f"the wake-ups at {odd} are not both accepted and in the ledger")
    begun = {each.anchor.run_id for each in history.of_kind(Kind.ACQUIRED)}
    for wake in ledger.wakes.values():
        if wake.disposition in ("ran", "coalesced") and wake.run and wake.run not in begun:
            yield Violation(
                "guessed", f"the wake-up at {wake.sequence} names run {wake.run}, which never began"
            )
