"""Counts corrected upward by what endpoints report as used. Pure.

A count for a vocabulary that is not the model's own is an estimate. What an endpoint reports of the requests that it was sent
tells by how much the estimate falls short; from the first report on, requests are counted at least so high.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from anchorwatch.core.errors import Damaged

RATIO_MAX = 4.0


@dataclass(frozen=True, slots=True)
class Correction:
    """The most that a report exceeded a count: as a ratio, and in tokens. ``reports``: how many there were.

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

        A report beyond `RATIO_MAX` either way is of something else (all requests of the day, say, or what no cache
        had): nothing is learned from it.
        """
        if counted <= 0 or not counted / RATIO_MAX <= reported <= counted * RATIO_MAX:
            return self
        return Correction(
            max(self.ratio, reported / counted), max(self.excess, reported - counted), self.reports + 1
        )

    def joined(self, other: Correction) -> Correction:
        """What two processes learned, together."""
        return Correction(
            max(self.ratio, other.ratio), max(self.excess, other.excess), max(self.reports, other.reports)
        )

    def to_json(self) -> dict[str, float]:
        return {"ratio": round(self.ratio, 6), "excess": self.excess, "reports": self.reports}


_ROUNDING = 1e-6
"""What a ratio that was rounded for storing may be short of, in tokens; not worth a token."""


def read_correction(value: object) -> Correction:
    """A correction from stored JSON.

    Raises:
        Damaged: it is none.
    """
    match value:
        case {"ratio": int() | float() as ratio, "excess": int(excess), "reports": int(reports)} if (
            math.isfinite(ratio) and ratio >= 1 and excess >= 0 and reports >= 0
        ):
            return Correction(float(ratio), excess, reports)
        case _:
            raise Damaged("a model's correction cannot be read")
