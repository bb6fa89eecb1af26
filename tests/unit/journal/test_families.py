"""What may be said of a command's family where some of its records cannot be read."""

from __future__ import annotations

from anchorwatch.core.effect.state import Outcome
from anchorwatch.core.names import CallId
from anchorwatch.journal.integrity.families import Families

CALL = CallId(1, 1, 1)


def test_lost_claim_hides_no_damaged_record_after_the_outcome() -> None:
    families = Families()
    families.take("default", CALL, 5, 0, Outcome(CALL, "launch", "unknown", "its executor died", {}))
    families.miss("default", CALL, "fx.done", 7)
    families.lose("default", CALL, "fx.claim", [(3, 3)])
    assert [(family.call, family.may_have_run) for family in families.open()] == [(CALL, True)]


def test_lost_claim_before_an_outcome_leaves_nothing_open() -> None:
    families = Families()
    families.take("default", CALL, 5, 0, Outcome(CALL, "launch", "succeeded", "ok", {}))
    families.lose("default", CALL, "fx.claim", [(3, 3)])
    assert families.open() == []
