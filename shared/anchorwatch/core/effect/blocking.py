"""When an unsettled effect blocks another command.

One command at a time touches a resource, and none while an earlier effect on it is `unknown` (INV-1302, INV-1303).
Within a session
the command's record names the earlier commands. Across sessions the register of the resource names the effects that may
touch it: each is entered before its claim, so of two concurrent entries one is fenced. A command waits for an effect that
has started, or is about to, and has no outcome; an `unknown` effect blocks every command that is claimed later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anchorwatch.core.effect.state import EffectState

RULE = "resource_blocked"
"""The rule that a refusal names."""


@dataclass(frozen=True, slots=True)
class Clear:
    """Nothing blocks the command."""


@dataclass(frozen=True, slots=True)
class Waits:
    """An earlier command has no outcome yet. ``on`` names it."""

    on: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """An effect with an unknown outcome blocks the command. ``by``: ``SESSION/RUN.STEP.N``; ``tool``: its tool."""

    by: str
    tool: str

    def say(self, resource: str) -> str:
        """The reason of the refusal, with what to do."""
        return (
            f"{resource or 'its resource'} is blocked: the outcome of {self.by} ({self.tool}) is unknown; "
            f"settle it with `anchorwatch effects resolve {self.by} done|not-done`"
        )


def before_claim(earlier: Iterable[tuple[str, EffectState]]) -> Clear | Waits | Blocked:
    """Whether earlier commands, in journal order and each with its name, block an unclaimed command."""
    for name, state in earlier:
        if state.outcome is None:
            return Waits(name)
        if state.unknown:
            return Blocked(name, state.outcome.tool)
    return Clear()


def before_first_claim(others: Iterable[tuple[str, int, EffectState]]) -> Clear | Waits:
    """Whether other effects in the register of its resource block a command that was never started.

    Each with its name, and the number of the claim that it was entered for. A claim with that number that is not recorded
    is in flight, or the journal has lost it.
    """
    for name, attempt, state in others:
        if state.outcome is None and (state.first_claim or state.attempts < attempt):
            return Waits(name)
    return Clear()


def under_claim(mine: EffectState, others: Iterable[tuple[str, EffectState]]) -> Clear | Blocked:
    """Whether other effects on its resource block a claimed command.

    An effect that was `unknown` before the command's first claim blocks it: the claimant saw that, so the command has
    certainly not run. One that became unknown later does not: the command had started, and is settled as its class allows.
    """
    for name, state in others:
        other_blocks = state.unknown and state.outcome_sequence < mine.first_claim
        if other_blocks and state.outcome is not None:
            return Blocked(name, state.outcome.tool)
    return Clear()
