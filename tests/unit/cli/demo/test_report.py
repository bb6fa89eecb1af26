"""The demo's outcome as text and as data."""

from __future__ import annotations

import json

from anchorwatch.testing.demo.checks import check_all
from anchorwatch.testing.demo.report import outcome
from anchorwatch.testing.harness import Check

from tests.unit.cli.demo.incident import kept

GOOD = Check("a promise", "this", "this", ok=True)
BAD = Check("another", "this", "that", ok=False)


def test_one_failed_check_fails_the_demo() -> None:
    assert outcome(1, 2.0, (GOOD,), kept()).ok
    assert not outcome(1, 2.0, (GOOD, BAD), kept()).ok


def test_outcome_without_checks_is_a_failure() -> None:
    assert not outcome(1, 2.0, (), kept()).ok


def test_text_has_expected_and_seen_and_how_to_repeat() -> None:
    text = "\n".join(outcome(17, 2.0, (GOOD, BAD), kept()).lines)
    assert "FAILED  another\n          expected  this\n          seen      that" in text
    assert text.endswith("1 of 2 checks failed: another\nto inspect it: anchorwatch demo --keep --seed 17")


def test_json_has_the_kills_the_claim_and_the_runs() -> None:
    evidence = kept()
    result = json.loads(json.dumps(outcome(17, 2.0, tuple(check_all(evidence)), evidence).to_json()))
    assert result["ok"] is True
    assert [kill["service"] for kill in result["kills"]] == ["planner", "executor", "notifier", "nats"]
    assert result["claim"]["sequence"] == 10
    assert [(run["run_id"], run["outcome"]) for run in result["runs"]] == [(1, "no_action"), (2, "success")]
    assert result["notifications"] == {"4-demo-aaaa": 1, "14-demo-bbbb": 2}
