"""When what is not known of one effect keeps another command from running.

A resource is touched by one command at a time, and by none while it is unknown what an earlier one did to it. Within a
session the earlier commands are known from the record of the command. Across sessions the register of the resource names
the effects that may touch it: each is entered before its claim, so of two that meet one is fenced. An effect that was begun,
or is about to be, and has no outcome is waited for; one that is `unknown` blocks every command that is claimed after that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anchorwatch.core.effect.state import EffectState

RULE = "resource_blocked"
"""The rule that a refusal names."""


@dataclass(frozen=True, slots=True)
class Clear:
    """Nothing stands in the way."""


@dataclass(frozen=True, slots=True)
class Waits:
    """An earlier command has no outcome yet. ``on`` names it."""

    on: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """What an effect did is not known. ``by`` names it (``SESSION/RUN.STEP.N``), ``tool`` what it called."""

    by: str
    tool: str

    def say(self, resource: str) -> str:
        """Why it is refused, and the way out."""
        return (
            f"{resource or 'its resource'} is blocked: what became of {self.by} ({self.tool}) is not known; "
            f"find out, and settle it with `anchorwatch effects resolve {self.by} done|not-done`"
        )


def before_claim(earlier: Iterable[tuple[str, EffectState]]) -> Clear | Waits | Blocked:
    """What the commands before it, in the journal's order, say of a command that nobody has claimed. Each with its name."""
    for name, state in earlier:
        if state.outcome is None:
            return Waits(name)
        if state.unknown:
            return Blocked(name, state.outcome.tool)
    return Clear()


def before_first_claim(others: Iterable[tuple[str, int, EffectState]]) -> Clear | Waits:
    """What other effects in the register of its resource say of a command that was never begun.

    Each with its name, and the number of the claim that it was entered for. A claim with that number that is not recorded
    is on its way, or the journal has lost it.
    """
    for name, attempt, state in others:
        if state.outcome is None and (state.first_claim or state.attempts < attempt):
            return Waits(name)
    return Clear()


def under_claim(mine: EffectState, others: Iterable[tuple[str, EffectState]]) -> Clear | Blocked:
    """What other effects on its resource say of a command that is claimed.

    One that was `unknown` before the command's first claim blocks it, and whoever has claimed it has seen that: it has certainly
    not run. One that became so later does not: the command had begun, and is settled as its class allows.
    """
    for name, state in others:
        other_blocks = state.unknown and state.outcome_sequence < mine.first_claim
        if other_blocks and state.outcome is not None:
            return Blocked(name, state.outcome.tool)
    return Clear()
