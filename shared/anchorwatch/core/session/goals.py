"""Objectives that compare a fact with a number, such as ``proofs_per_hour >= 500``, and the turns that missed them. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MISSED_RUNS = 3
"""Turns in a row after which people are notified, once for each streak."""
_FORM = re.compile(r"\s*([A-Za-z_]\w*)\s*(>=|<=|==|>|<)\s*(-?\d+(?:\.\d+)?)\s*", re.ASCII)
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True, slots=True)
class Goal:
    """A fact and the number that it is compared with."""

    fact: str
    compare: str
    number: float

    def met(self, facts: Mapping[str, Any]) -> bool | None:
        """Whether the facts meet it; None: the fact is unknown, or is not a number."""
        value = facts.get(self.fact)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return _COMPARE[self.compare](value, self.number)


def goal_of(objective: str) -> Goal | None:
    """The comparison that an objective states; None: it is a text for the model."""
    found = _FORM.fullmatch(objective)
    return Goal(found[1], found[2], float(found[3])) if found else None


def missed_after(
    objectives: Iterable[str], before: Mapping[str, int], facts: Mapping[str, Any]
) -> dict[str, int]:
    """By objective, the number of turns in a row that missed it, after a turn that ended with ``facts``.

    A turn whose fact is unknown neither meets nor misses it.
    """
    after = {}
    for text in objectives:
        goal = goal_of(text)
        if goal is None:
            continue
        met = goal.met(facts)
        count = before.get(text, 0) if met is None else 0 if met else before.get(text, 0) + 1
        if count:
            after[text] = count
    return after
