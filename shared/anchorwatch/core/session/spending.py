"""What a session's model calls used, and whether there is budget for one more. Pure.

Tokens are as the endpoint reported them; where it reported nothing, a request counts as it was counted before it was sent, since
missing usage is unknown, not zero. A day is one of UTC. Money is counted in whole millionths, so that sums are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

DAY_MS = 86_400_000
MICROS = 1_000_000
COST = "cost_micros"
"""What a call cost, in a step's recorded usage: priced when it was made, since prices change and records do not."""
WARN_SHARE = 0.8
"""Of a budget: crossing it is told to people, once."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Of prompts and of completions; ``micros``: what they cost, in millionths of the prices' unit."""

    prompt: int = 0
    completion: int = 0
    micros: int = 0

    @property
    def all(self) -> int:
        return self.prompt + self.completion

    @property
    def cost(self) -> float:
        return self.micros / MICROS

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.prompt + other.prompt, self.completion + other.completion, self.micros + other.micros
        )


@dataclass(frozen=True, slots=True)
class Spent:
    """What was used: in the running or last turn, in ``day`` (days since 1970), and in all."""

    day: int = 0
    turn: Tokens = Tokens()
    today: Tokens = Tokens()
    ever: Tokens = Tokens()

    def on(self, at_ms: int) -> Spent:
        """The same, as of an instant: another day begins at nothing. A clock that was set back changes no day."""
        day = at_ms // DAY_MS
        return self if day <= self.day else replace(self, day=day, today=Tokens())

    def with_call(self, tokens: Tokens, at_ms: int) -> Spent:
        """After a call that used so many tokens."""
        before = self.on(at_ms)
        return Spent(before.day, before.turn + tokens, before.today + tokens, before.ever + tokens)

    def turn_begun(self) -> Spent:
        return replace(self, turn=Tokens())


@dataclass(frozen=True, slots=True)
class Prices:
    """Of a million tokens, in whatever unit the budgets are in; 0: not known, and nothing is bounded by it."""

    prompt: float = 0.0
    completion: float = 0.0

    def priced(self, usage: Mapping[str, Any], counted: int) -> dict[str, Any]:
        """A call's usage with its cost; as it is where no price is known. ``counted``: as `used`."""
        if not (self.prompt or self.completion):
            return dict(usage)
        tokens = used(usage, counted)
        micros = round(tokens.prompt * self.prompt + tokens.completion * self.completion)
        return {**usage, COST: micros}


@dataclass(frozen=True, slots=True)
class Budget:
    """What a session may use; None: no bound."""

    turn_tokens: int | None = None
    day_tokens: int | None = None
    day_cost: float | None = None

    def exhausted(self, spent: Spent) -> str:
        """Which bound is reached, in a sentence; empty: none."""
        used, cost = spent.today.all, spent.today.cost
        if self.turn_tokens is not None and spent.turn.all >= self.turn_tokens:
            return f"the turn used {spent.turn.all} tokens, its budget is {self.turn_tokens}"
        if self.day_tokens is not None and used >= self.day_tokens:
            return f"the day's budget of {self.day_tokens} tokens is spent: {used} were used"
        if self.day_cost is not None and cost >= self.day_cost:
            return f"the day's budget of {self.day_cost:g} is spent: {cost:.2f} were used"
        return ""

    def warning(self, spent: Spent) -> str:
        """The bound of the day that came near in this turn, in a sentence; empty: none did."""
        before = Tokens(
            max(0, spent.today.prompt - spent.turn.prompt),
            max(0, spent.today.completion - spent.turn.completion),
            max(0, spent.today.micros - spent.turn.micros),
        )
        if self.day_tokens is not None and _crossed(before.all, spent.today.all, self.day_tokens):
            return f"{spent.today.all} of the day's budget of {self.day_tokens} tokens are used"
        if self.day_cost is not None:
            was, now = before.cost, spent.today.cost
            if _crossed(was, now, self.day_cost):
                return f"{now:.2f} of the day's budget of {self.day_cost:g} is spent"
        return ""


def _crossed(was: float, now: float, bound: float) -> bool:
    return was < bound * WARN_SHARE <= now


def used(usage: Mapping[str, Any], counted: int) -> Tokens:
    """The tokens of a call; ``counted``: the request's, where the endpoint said nothing."""
    prompt, completion, cost = usage.get("prompt"), usage.get("completion"), usage.get(COST)
    return Tokens(
        prompt if isinstance(prompt, int) else counted,
        completion if isinstance(completion, int) else 0,
        cost if isinstance(cost, int) else 0,
    )
