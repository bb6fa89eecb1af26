"""The usage of a session's model calls, and its budgets. Pure.

Tokens are as the endpoint reported them; without a report that can be true, they are estimated, because missing usage is
unknown, not zero. A day is a UTC day. Money is counted in whole millionths, so that sums are exact.

A request is *reserved* before it is sent: a record counts it as estimated. The record of its result *settles* it: that usage
counts in place of the reservation (INV-622). A planner that dies, or is replaced, in between leaves the estimate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

DAY_MS = 86_400_000
MICROS = 1_000_000
COST = "cost_micros"
"""The cost of a call in a recorded usage: priced at the time of the call."""
ESTIMATED = "estimated"
"""How many of the tokens in a recorded usage are estimated, for want of a credible report."""
RESERVED, RESERVED_COST = "reserved", "reserved_micros"
"""The reservation that a recorded usage settles."""
WARN_SHARE = 0.8
"""The share of a budget whose crossing is notified once."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of prompts and completions, ``estimated`` of them without a report; ``micros``: millionths of the currency."""

    prompt: int = 0
    completion: int = 0
    micros: int = 0
    estimated: int = 0

    @property
    def all(self) -> int:
        return self.prompt + self.completion

    @property
    def cost(self) -> float:
        return self.micros / MICROS

    def __add__(self, other: Tokens) -> Tokens:
        """The sum, at least 0 in each part: a reservation may be settled on the day after it."""
        return Tokens(
            max(0, self.prompt + other.prompt),
            max(0, self.completion + other.completion),
            max(0, self.micros + other.micros),
            max(0, self.estimated + other.estimated),
        )


@dataclass(frozen=True, slots=True)
class Spent:
    """Usage in the running or last turn, in ``day`` (days since 1970), and in total."""

    day: int = 0
    turn: Tokens = Tokens()
    today: Tokens = Tokens()
    ever: Tokens = Tokens()

    def on(self, at_ms: int) -> Spent:
        """The usage as of an instant: a new day starts at zero. A clock that was set back does not change the day."""
        day = at_ms // DAY_MS
        return self if day <= self.day else replace(self, day=day, today=Tokens())

    def with_call(self, tokens: Tokens, at_ms: int) -> Spent:
        """The usage after a call."""
        before = self.on(at_ms)
        return Spent(before.day, before.turn + tokens, before.today + tokens, before.ever + tokens)

    def turn_begun(self) -> Spent:
        return replace(self, turn=Tokens())


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a million tokens in the currency of the budgets; 0: unknown, and no bound applies."""

    prompt: float = 0.0
    completion: float = 0.0

    def priced(self, usage: Mapping[str, int]) -> dict[str, int]:
        """A call's usage with its cost; unchanged without prices."""
        if not (self.prompt or self.completion):
            return dict(usage)
        tokens = used(usage)
        micros = round(tokens.prompt * self.prompt + tokens.completion * self.completion)
        return {**usage, COST: micros}


@dataclass(frozen=True, slots=True)
class Budget:
    """The bounds on a session's usage; None: no bound."""

    turn_tokens: int | None = None
    day_tokens: int | None = None
    day_cost: float | None = None

    def exhausted(self, spent: Spent) -> str:
        """The bound that is reached, in a sentence; empty: none."""
        used, cost = spent.today.all, spent.today.cost
        if self.turn_tokens is not None and spent.turn.all >= self.turn_tokens:
            return f"the turn used {spent.turn.all} tokens of its budget of {self.turn_tokens}{_of_which(spent.turn)}"
        if self.day_tokens is not None and used >= self.day_tokens:
            return f"the day's budget is spent: {used} of {self.day_tokens} tokens{_of_which(spent.today)}"
        if self.day_cost is not None and cost >= self.day_cost:
            return f"the day's budget is spent: {cost:.2f} of {self.day_cost:g}"
        return ""

    def warning(self, spent: Spent) -> str:
        """The daily bound that this turn brought above the warning share, in a sentence; empty: none."""
        before = Tokens(
            max(0, spent.today.prompt - spent.turn.prompt),
            max(0, spent.today.completion - spent.turn.completion),
            max(0, spent.today.micros - spent.turn.micros),
        )
        if self.day_tokens is not None and _crossed(before.all, spent.today.all, self.day_tokens):
            return f"the day's budget is nearly spent: {spent.today.all} of {self.day_tokens} tokens"
        if self.day_cost is not None:
            was, now = before.cost, spent.today.cost
            if _crossed(was, now, self.day_cost):
                return f"the day's budget is nearly spent: {now:.2f} of {self.day_cost:g}"
        return ""


def _crossed(was: float, now: float, bound: float) -> bool:
    return was < bound * WARN_SHARE <= now


def _of_which(tokens: Tokens) -> str:
    return f", {tokens.estimated} of them estimated" if tokens.estimated else ""


def used(usage: Mapping[str, Any]) -> Tokens:
    """What a recorded usage adds to the sums: its tokens, without the reservation that it settles."""

    def number(name: str) -> int:
        value = usage.get(name)
        return value if isinstance(value, int) else 0

    reserved = number(RESERVED)
    return Tokens(
        number("prompt") - reserved,
        number("completion"),
        number(COST) - number(RESERVED_COST),
        number(ESTIMATED) - reserved,
    )


def together(usages: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The usage of several calls, added up."""
    total: Counter[str] = Counter()
    for usage in usages:
        total.update(usage)
    return dict(total)
