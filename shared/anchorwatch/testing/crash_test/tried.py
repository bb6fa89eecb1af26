"""What a crash test tried: without a started effect and a death in its call, a promise was not tested. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from anchorwatch.core.tools import EffectClass, ToolSpec
from anchorwatch.edges import Edge
from anchorwatch.testing.checks.evidence import Call, Evidence
from anchorwatch.testing.harness import Check

COMMANDS_MIN = 5
"""Of a seed: with fewer, most kills hit a mesh that does nothing."""
_EVERY_COMMAND = (
    Edge.EXECUTOR_CLAIM_BEFORE,
    Edge.EXECUTOR_CLAIM_AFTER,
    Edge.EXECUTOR_EFFECT_BEFORE,
    Edge.EXECUTOR_EFFECT_AFTER,
    Edge.EXECUTOR_OUTCOME_BEFORE,
    Edge.EXECUTOR_OUTCOME_AFTER,
    Edge.EXECUTOR_ACK_BEFORE,
)
_OF_CLASS: Mapping[EffectClass, tuple[Edge, ...]] = {
    EffectClass.RECONCILABLE: (Edge.EXECUTOR_RECONCILE_BEFORE, Edge.EXECUTOR_RECONCILE_AFTER),
}


@dataclass(frozen=True, slots=True)
class Tried:
    """A granted tool in one seed, as recorded outside the journal.

    ``started``: the number of its effects that were started. ``interrupted``: the number of effects whose executor died between
    claim and outcome. ``counted``: of the started ones, the number that the real system could count.
    """

    tool: str
    effect_class: EffectClass
    started: int = 0
    interrupted: int = 0
    counted: int = 0

    def __add__(self, other: Tried) -> Tried:
        return Tried(
            self.tool,
            self.effect_class,
            self.started + other.started,
            self.interrupted + other.interrupted,
            self.counted + other.counted,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "tool": self.tool,
            "effect_class": str(self.effect_class),
            "started": self.started,
            "interrupted": self.interrupted,
        }


def tried(tools: Iterable[ToolSpec], evidence: Evidence) -> tuple[Tried, ...]:
    """What one seed tried of each granted tool."""
    unknown = {each.outcome.call for each in evidence.history.outcomes if each.outcome.state == "unknown"}
    in_doubt = {claim.claimed.effect_key for claim in evidence.history.claims if claim.call in unknown}
    found = []
    for tool in tools:
        calls = [call for call in evidence.calls.values() if call.tool == tool.name]
        found.append(
            Tried(
                tool.name,
                tool.effect_class,
                started=sum(call.begun > 0 for call in calls),
                interrupted=sum(_is_interrupted(call, in_doubt) for call in calls),
                counted=sum(call.done is not None for call in calls if call.begun),
            )
        )
    return tuple(found)


def _is_interrupted(call: Call, in_doubt: AbstractSet[str]) -> bool:
    """Whether an executor died between its claim and its outcome: in the call, or so that the outcome is unknown.

    A tool that reports an unknown outcome (``raised``) needs no death for it.
    """
    return call.begun > len(call.ended) or (call.effect_key in in_doubt and "raised" not in call.ended)


def summed(seeds: Iterable[Sequence[Tried]]) -> list[Tried]:
    """The same over all seeds, in the order of the tools."""
    total: dict[str, Tried] = {}
    for each in (tool for seed in seeds for tool in seed):
        total[each.tool] = total[each.tool] + each if each.tool in total else each
    return list(total.values())


def checks(tools: Sequence[Tried], commands: Sequence[int], reached: AbstractSet[Edge]) -> list[Check]:
    """Whether the test tried anything. ``commands``: the number in each seed; ``reached``: the edges at which a process died."""
    started = sum(tool.started for tool in tools)
    # A read changes nothing: without one, nothing that matters is untested.
    classes = {
        tool.effect_class for tool in tools if tool.started or tool.effect_class is not EffectClass.READ
    }
    idle = sorted(classes - {tool.effect_class for tool in tools if tool.interrupted})
    missed = [edge for edge in required(classes) if edge not in reached]
    return [
        Check("effects were started", "1 or more", str(started), ok=started > 0),
        Check(
            "each seed had work",
            f"{COMMANDS_MIN} or more commands",
            str(min(commands, default=0)),
            ok=min(commands, default=0) >= COMMANDS_MIN,
        ),
        Check(
            "an executor died in an effect of each class that the agent may use",
            ", ".join(sorted(classes)) or "a granted tool",
            f"not of {', '.join(idle)}" if idle else "all" if classes else "no granted tool",
            ok=bool(classes) and not idle,
        ),
        Check(
            "an executor died at every edge of these classes",
            "0 missed",
            ", ".join(missed) or "0 missed",
            ok=not missed,
        ),
    ]


def required(classes: AbstractSet[EffectClass]) -> list[Edge]:
    """The executor's edges that a command of one of these classes reaches sooner or later."""
    return [*_EVERY_COMMAND, *(edge for each in sorted(classes) for edge in _OF_CLASS.get(each, ()))]


def not_checked(tools: Sequence[Tried], events: int) -> list[str]:
    """The promises of which the test says nothing, each with the reason."""
    found = []
    for tool in tools:
        changes = tool.effect_class in (EffectClass.IDEMPOTENT, EffectClass.RECONCILABLE)
        if not tool.started:
            why = "its executor died before each call" if tool.interrupted else "it was never called"
            found.append(f"{tool.tool} ({tool.effect_class}): {why}")
        elif not tool.interrupted:
            found.append(f"{tool.tool} ({tool.effect_class}): no executor died in an effect of it")
        elif changes and not tool.counted:
            found.append(
                f"how often {tool.tool} was really done: the pack does not count it (`times_done`), so the provider's handling of"
                " the effect key is taken on trust"
            )
    if not events:
        found.append("that no event is lost: the work has no event to which the agent subscribes")
    return found
