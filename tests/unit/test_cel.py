"""Rules in CEL, through the one adapter."""

from __future__ import annotations

import pytest
from anchorwatch import cel
from anchorwatch.core.errors import BadInput
from anchorwatch.core.facts import Observation
from anchorwatch.core.policy import Question, Verdict, judge
from anchorwatch.core.tools import Invariant

RULE = "!(observation.queued && observation.dead) || command.tool != 'stop'"


@pytest.mark.parametrize(
    ("expression", "values", "expected"),
    [
        ("a.b <= 5", {"a": {"b": 5}}, True),
        ("a < 5.5", {"a": 5}, True),
        ("x == null", {"x": None}, True),
        ("'w' in names", {"names": ["v", "w"]}, True),
        ("size(args) == 0", {"args": {}}, True),
    ],
)
def test_rule_is_evaluated(expression: str, values: dict[str, object], expected: object) -> None:
    assert cel.evaluate(expression, values) == expected


def test_invalid_cel_names_the_place() -> None:
    with pytest.raises(BadInput, match="not valid CEL"):
        cel.check("a ++ b")


def test_unknown_name_raises() -> None:
    with pytest.raises(KeyError):
        cel.evaluate("a.missing", {"a": {}})


@pytest.mark.parametrize(
    ("facts", "decision"),
    [
        ({"queued": True, "dead": True}, "refused"),
        ({"queued": True, "dead": False}, "allowed"),
        ({"queued": True, "dead": None}, "refused"),
        ({"queued": True}, "refused"),
    ],
)
def test_policy_judges_with_the_rule(facts: dict[str, bool | None], decision: str) -> None:
    question = Question("stop", {}, "fleet", ("stop",), {}, Observation("", facts, 0, "d"))
    invariant = Invariant("no-stop", ("stop",), RULE, needs=("queued", "dead"))
    assert judge(question, [invariant], cel.evaluate).decision == decision


def test_invalid_cel_rule_refuses() -> None:
    question = Question("stop", {}, "fleet", ("stop",), {}, Observation("", {}, 0, "d"))
    verdict = judge(question, [Invariant("broken", ("stop",), "a ++ b")], cel.evaluate)
    assert (verdict.decision, verdict.rule) == ("refused", "broken")
    assert verdict != Verdict("allowed", "grant")
