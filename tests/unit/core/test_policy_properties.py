"""The policy over any rules: it never raises, and says "allowed" only where everything that is asked for holds and is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anchorwatch.core.facts import Observation
from anchorwatch.core.policy import Question, judge
from anchorwatch.core.tools import Invariant
from hypothesis import given, settings
from hypothesis import strategies as st

SAYS: Mapping[str, object] = {"true": True, "false": False, "odd": 1, "text": "true", "none": None}
WORDS = st.sampled_from([*SAYS, "raises"])
NAMES = st.sampled_from(["ready", "dead"])
INVARIANTS = st.builds(
    Invariant,
    name=st.sampled_from(["a", "b", "c"]),
    tools=st.sampled_from([("launch",), ("stop",), ("launch", "stop")]),
    rule=WORDS,
    when=st.just("") | WORDS,
    needs=st.lists(NAMES, max_size=2).map(tuple),
    message=st.just("no"),
)
SEEN = st.none() | st.dictionaries(NAMES, st.none() | st.booleans() | st.integers(0, 2), max_size=2)


def evaluate(expression: str, values: Mapping[str, Any]) -> object:
    del values
    if expression == "raises":
        raise ZeroDivisionError(expression)
    return SAYS[expression]


def applies(invariant: Invariant) -> bool:
    return "launch" in invariant.tools and (not invariant.when or bool(SAYS.get(invariant.when, "raises")))


@settings(max_examples=500, deadline=None)
@given(invariants=st.lists(INVARIANTS, max_size=4), facts=SEEN, granted=st.booleans())
def test_allowed_requires_every_rule_to_hold_with_known_facts(
    invariants: list[Invariant], facts: dict[str, Any] | None, *, granted: bool
) -> None:
    observation = None if facts is None else Observation("", facts, 1, "d")
    question = Question("launch", {}, "fleet", ["launch"] if granted else [], {}, observation)
    verdict = judge(question, invariants, evaluate)
    held = [
        invariant.when != "raises"
        and invariant.rule == "true"
        and all((facts or {}).get(name) is not None for name in invariant.needs)
        for invariant in invariants
        if applies(invariant)
    ]
    assert (verdict.decision == "allowed") == (granted and all(held))
    if verdict.decision == "refused":
        assert verdict.rule == "grant" or verdict.rule in {each.name for each in invariants}
        assert verdict.reason
