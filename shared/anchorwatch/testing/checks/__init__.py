"""The invariants of a finished run: pure functions over a session's records and independent counts."""

from anchorwatch.testing.checks.anchors import check_anchors
from anchorwatch.testing.checks.deliveries import check_deliveries
from anchorwatch.testing.checks.effects import check_effects
from anchorwatch.testing.checks.evidence import Arrivals, Call, Evidence, Violation
from anchorwatch.testing.checks.families import check_families
from anchorwatch.testing.checks.session import at_rest, check_session
from anchorwatch.testing.checks.steps import check_steps
from anchorwatch.testing.checks.wakes import check_wakes


def check(evidence: Evidence) -> list[Violation]:
    """All violations in a run's evidence; the session must be at rest (`at_rest`)."""
    parts = (
        check_session,
        check_anchors,
        check_steps,
        check_effects,
        check_families,
        check_deliveries,
        check_wakes,
    )
    return [violation for part in parts for violation in part(evidence)]


__all__ = ["Arrivals", "Call", "Evidence", "Violation", "at_rest", "check"]
