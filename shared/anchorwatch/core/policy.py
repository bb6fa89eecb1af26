"""Decides whether a command may run, by grants, limits and invariants. Pure: `Evaluate` evaluates CEL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from anchorwatch.core.facts import Observation
from anchorwatch.core.tools import Invariant

Evaluate = Callable[[str, Mapping[str, Any]], object]
"""Evaluates a CEL expression over named values; raises any exception when it cannot."""


CONSTRAINT = "constraint"
"""The rule that an outcome names when a constraint of the session refused its command."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision, the ``rule`` that made it, and the ``reason`` in a sentence for model and people."""

    decision: Literal["allowed", "refused", "gate"]
    rule: str
    reason: str = ""

    @property
    def allowed(self) -> bool:
        return self.decision == "allowed"


@dataclass(frozen=True, slots=True)
class Question:
    """The input of the policy."""

    tool: str
    args: Mapping[str, Any]
    resource: str
    grants: Sequence[str]
    facts: Mapping[str, Any]
    observation: Observation | None


def judge(question: Question, invariants: Sequence[Invariant], evaluate: Evaluate) -> Verdict:
    """The verdict on one command. A rule that cannot be evaluated refuses."""
    if question.tool not in question.grants:
        return Verdict("refused", "grant", f"the agent has no grant for {question.tool}")
    command = {"tool": question.tool, "args": dict(question.args), "resource": question.resource}
    for invariant in invariants:
        if question.tool in invariant.tools and (refusal := _check(question, command, invariant, evaluate)):
            return refusal
    return Verdict("allowed", "grant")


def constrained(question: Question, rules: Mapping[str, str], evaluate: Evaluate) -> Verdict | None:
    """The refusal of a command by a constraint of its session; None: no rule forbids it.

    ``rules``: CEL by the constraint's text. Unknown facts are absent, so a rule that needs one cannot be evaluated, and refuses.
    """
    seen = question.observation.facts if question.observation else {}
    values = {
        "command": {"tool": question.tool, "args": dict(question.args), "resource": question.resource},
        "facts": {name: value for name, value in question.facts.items() if value is not None},
        "observation": {name: value for name, value in seen.items() if value is not None},
    }
    for text, rule in rules.items():
        try:
            if evaluate(rule, values) is True:
                continue
            why = "the rule is not true"
        except Exception as error:  # noqa: BLE001 - as in `_check`
            why = f"the rule cannot be evaluated: {type(error).__name__}: {error}"[:200]
        return Verdict("refused", CONSTRAINT, f"{text} [{rule}]: {why}")
    return None


def needs_observation(tool: str, invariants: Sequence[Invariant]) -> bool:
    """Whether the verdict on a call of ``tool`` needs an observation."""
    return any(tool in invariant.tools for invariant in invariants)


def _check(
    question: Question, command: Mapping[str, Any], invariant: Invariant, evaluate: Evaluate
) -> Verdict | None:
    try:
        if invariant.when and not evaluate(invariant.when, {"command": command}):
            return None
    except Exception as error:  # noqa: BLE001 - a rule that cannot be evaluated refuses, whatever the library raises
        return Verdict("refused", invariant.name, f"its condition cannot be evaluated: {error}"[:300])
    seen = question.observation.facts if question.observation else {}
    unknown = [name for name in invariant.needs if seen.get(name) is None]
    if unknown:
        return Verdict(
            "refused", invariant.name, f"{', '.join(unknown)} unknown; {invariant.message}".rstrip("; ")
        )
    try:
        held = evaluate(
            invariant.rule, {"command": command, "facts": dict(question.facts), "observation": dict(seen)}
        )
    except Exception as error:  # noqa: BLE001 - as above
        return Verdict("refused", invariant.name, f"the rule cannot be evaluated: {error}"[:300])
    return None if held is True else Verdict("refused", invariant.name, invariant.message)
