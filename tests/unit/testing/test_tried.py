"""A crash test that tried nothing does not pass, and each passing one says what it did not check (INV-1202)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from anchorwatch.core.tools import EffectClass, ToolSpec
from anchorwatch.edges import Edge
from anchorwatch.testing.checks.evidence import Call, Evidence
from anchorwatch.testing.crash_test import report
from anchorwatch.testing.crash_test.trial import Trial
from anchorwatch.testing.crash_test.tried import Tried, not_checked, required, tried
from anchorwatch.testing.harness import Outcome

from tests.unit.testing.test_checks import KEY, correct

SET = Tried("set", EffectClass.IDEMPOTENT, started=4, interrupted=1, counted=4)
BUILD = Tried("build", EffectClass.RECONCILABLE, started=2, interrupted=1, counted=2)
FIRE = Tried("fire", EffectClass.IRREVERSIBLE, started=2, interrupted=1)
LOOK = Tried("look", EffectClass.READ)
TRIAL = Trial(
    seed=1,
    seconds=60.0,
    reached=Counter(required({EffectClass.RECONCILABLE})),
    kills=60,
    turns=9,
    commands=8,
    events=1,
    tried=(SET, BUILD, FIRE, LOOK),
    violations=(),
    crashes=(),
)


def outcome(*trials: Trial) -> Outcome:
    return report.outcome("told", "keeper", trials, "anchorwatch crash-test")


def test_crash_test_that_tried_every_class_passes() -> None:
    passed = outcome(TRIAL)
    assert passed.ok, passed.failed
    assert passed.data["not_checked"] == ["look (read): it was never called"]
    assert "NOT CHECKED: look (read): it was never called" in passed.lines


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        (
            {"tried": (), "commands": 0, "reached": Counter()},
            ["effects", "seed", "class", "edge"],
        ),
        ({"commands": 1}, ["seed"]),
        ({"tried": (SET, BUILD, replace(FIRE, interrupted=0))}, ["class"]),
        ({"tried": (SET, BUILD, replace(FIRE, started=0, interrupted=0))}, ["class"]),
        ({"reached": Counter(required({EffectClass.IDEMPOTENT}))}, ["edge"]),
        ({"reached": Counter(dict.fromkeys(required({EffectClass.RECONCILABLE})[1:], 1))}, ["edge"]),
    ],
    ids=["no-grant", "one-command", "no-death-in-a-call", "never-called", "no-reconcile", "no-death-at-a-claim"],
)  # fmt: skip
def test_crash_test_that_tried_too_little_fails(changes: dict[str, object], failed: list[str]) -> None:
    done = outcome(replace(TRIAL, **changes))  # type: ignore[arg-type]  # the fields of the table
    assert not done.ok
    assert len(done.failed) == len(failed)
    assert all(word in name for word, name in zip(failed, done.failed, strict=True))
    assert sum(line.startswith("FAILED: ") for line in done.lines) == len(failed)


def test_seeds_are_judged_together_and_each_needs_work() -> None:
    other = replace(TRIAL, seed=2, tried=(replace(SET, interrupted=0),), reached=Counter[Edge]())
    assert outcome(TRIAL, other).ok
    assert outcome(TRIAL, replace(other, commands=4)).failed == ["each seed had work"]


def test_unchecked_promises_are_named_with_the_reason() -> None:
    assert not_checked([SET, BUILD, FIRE], events=1) == []
    assert not_checked([replace(FIRE, started=0)], events=1) == [
        "fire (irreversible): its executor died before each call"
    ]
    found = not_checked([replace(SET, counted=0), replace(FIRE, interrupted=0)], events=0)
    assert [each.partition(":")[0] for each in found] == [
        "how often set was really done",
        "fire (irreversible)",
        "that no event is lost",
    ]


def test_call_without_an_end_is_one_in_which_an_executor_died() -> None:
    schema = {"type": "object", "additionalProperties": False}
    tools = [
        ToolSpec(name, f"{name} it", schema, effect_class=EffectClass.IDEMPOTENT) for name in ("set", "other")
    ]
    calls = {
        "k1": Call("k1", begun=1, ended=("returned",), done=1, tool="set"),
        "k2": Call("k2", begun=2, ended=("returned",), done=None, tool="set"),
        "k3": Call("k3", begun=0, tool="set"),
    }
    assert tried(tools, Evidence(calls=calls)) == (
        Tried("set", EffectClass.IDEMPOTENT, started=2, interrupted=1, counted=1),
        Tried("other", EffectClass.IDEMPOTENT),
    )


def test_unknown_outcome_shows_a_death_unless_reported() -> None:
    """After the first death, an irreversible effect on the same resource may never start again."""
    history = correct().history
    unknown = replace(history.outcomes[0], outcome=replace(history.outcomes[0].outcome, state="unknown"))
    evidence = Evidence(history=replace(history, outcomes=(unknown,)))
    tool = ToolSpec("fire", "Fire it.", {"type": "object", "additionalProperties": False})

    def interrupted(call: Call) -> int:
        return tried([tool], replace(evidence, calls={KEY: call}))[0].interrupted

    assert interrupted(Call(KEY, tool="fire")) == 1
    assert interrupted(Call(KEY, begun=1, ended=("returned",), tool="fire")) == 1
    assert interrupted(Call(KEY, begun=1, ended=("raised",), tool="fire")) == 0
    assert interrupted(Call("another", begun=1, ended=("returned",), tool="fire")) == 0
