"""Token counts corrected upward by reported usage. Pure.

A count for a vocabulary that is not the model's own is an estimate. Reported usage shows by how
much the estimate is too low; after the first report, no request is counted below what the endpoint would report.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from anchorwatch.core.errors import Damaged
from anchorwatch.models.usage import is_credible


@dataclass(frozen=True, slots=True)
class Correction:
    """The largest excess of a report over a count, as a ratio and in tokens. ``reports``: the number of reports.

    The larger of the two is taken. Where an endpoint uses ``a`` tokens for each one counted (a ≥ 1) and ``b`` more for
    each request, one report is enough for all later counts: of a larger request ``ratio`` has ``b`` in
    proportion, of a smaller one ``excess`` has ``a`` of the larger.
    """

    ratio: float = 1.0
    excess: int = 0
    reports: int = 0

    def applied(self, counted: int) -> int:
        """The count, corrected."""
        return max(math.ceil(counted * self.ratio - _ROUNDING), counted + self.excess)

    def learned(self, counted: int, reported: int) -> Correction:
        """The correction after ``reported`` tokens were reported for a request that was counted, uncorrected, as ``counted``.

        A report that is not credible is ignored.
        """
        if not is_credible(reported, counted):
            return self
        return Correction(
            max(self.ratio, reported / counted), max(self.excess, reported - counted), self.reports + 1
        )

    def joined(self, other: Correction) -> Correction:
        """The combination of what two processes learned."""
        return Correction(
            max(self.ratio, other.ratio), max(self.excess, other.excess), max(self.reports, other.reports)
        )

    def to_json(self) -> dict[str, float]:
        return {"ratio": round(self.ratio, 6), "excess": self.excess, "reports": self.reports}


_ROUNDING = 1e-6
"""Tolerance for a ratio that was rounded when stored, in tokens."""


def read_correction(value: object) -> Correction:
    """A correction from stored JSON.

    Raises:
        Damaged: the value is not a correction.
    """
    match value:
        case {"ratio": int() | float() as ratio, "excess": int(excess), "reports": int(reports)} if (
            math.isfinite(ratio) and ratio >= 1 and excess >= 0 and reports >= 0
        ):
            return Correction(float(ratio), excess, reports)
        case _:
            raise Damaged("a model's correction cannot be read")
