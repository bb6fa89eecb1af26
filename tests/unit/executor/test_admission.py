"""Which commands the policy refuses, and what it reads before it does."""

from __future__ import annotations

import math
from typing import Any

import pytest
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.facts import Observation
from anchorwatch.core.names import CallId
from anchorwatch.core.session.events import CommandDecided
from anchorwatch.core.tools import EffectClass, Invariant, ToolSpec
from anchorwatch.executor.admission import admit, refused_by_rule
from anchorwatch.executor.schema import schema_problems

SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"count": {"type": "integer", "minimum": 1}, "priority": {"enum": ["normal", "emergency"]}},
    "required": ["priority"],
    "additionalProperties": False,
}
LAUNCH = ToolSpec("launch", "", SCHEMA, EffectClass.RECONCILABLE, observation_age_max_s=60)
NOW_MS = 100_000


def command(tool: str = "launch", digest: str = "d", seen_ms: int = NOW_MS, **args: Any) -> CommandDecided:
    given = args or {"priority": "normal"}
    return CommandDecided(
        CallId(1, 1, 1), "t", 1, "a@1", "default", tool, given, "fleet", "", digest, seen_ms
    )


@pytest.mark.parametrize(
    ("decided", "tool", "rule"),
    [
        (command(), LAUNCH, None),
        (command(count=1), LAUNCH, "schema"),
        (command(digest=""), LAUNCH, "observation_age"),
        (command(seen_ms=NOW_MS - 60_000), LAUNCH, None),
        (command(seen_ms=NOW_MS - 60_001), LAUNCH, "observation_age"),
        (command(digest="", seen_ms=0), ToolSpec("launch", "", SCHEMA, EffectClass.READ), None),
        (command(digest="", seen_ms=0), ToolSpec("launch", "", SCHEMA, observation_age_max_s=math.inf), None),
    ],
)
def test_command_is_refused_by_the_first_rule_it_breaks(
    decided: CommandDecided, tool: ToolSpec, rule: str | None
) -> None:
    verdict = refused_by_rule(decided, tool, ["launch"], NOW_MS)
    assert (verdict.rule if verdict else None) == rule


def test_grant_comes_before_the_schema() -> None:
    verdict = refused_by_rule(command(count=0), LAUNCH, [], NOW_MS)
    assert verdict is not None
    assert verdict.rule == "grant"


async def test_admit_observes_only_for_an_invariant_of_the_tool() -> None:
    read: list[str] = []

    async def anchor() -> tuple[Anchor, int]:
        read.append("anchor")
        return Anchor(workspace="default", session="fleet", agent="a@1", facts={"limit": 2}), 1

    async def observation() -> Observation:
        read.append("world")
        return Observation("", {"running": 3}, NOW_MS, "d")

    other = Invariant("other", ("stop",), "false")
    verdict = await admit(
        command(), LAUNCH, ["launch"], [other], anchor=anchor, observation=observation, now_ms=NOW_MS
    )
    assert (verdict.decision, read) == ("allowed", [])
    limit = Invariant(
        "limit", ("launch",), "observation.running < facts.limit", needs=("running",), message="full"
    )
    verdict = await admit(
        command(), LAUNCH, ["launch"], [limit], anchor=anchor, observation=observation, now_ms=NOW_MS
    )
    assert (verdict.decision, verdict.rule, verdict.reason, read) == (
        "refused",
        "limit",
        "full",
        ["anchor", "world"],
    )


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"priority": "normal"}, ""),
        ({"priority": "normal", "count": 2}, ""),
        ({}, '"priority" is a required property'),
        ({"priority": "urgent"}, 'priority: "urgent" is not one of'),
        ({"priority": "normal", "count": 0}, "count: 0 is less than the minimum"),
        ({"priority": "normal", "count": "2"}, 'count: "2" is not of type "integer"'),
        ({"priority": "normal", "more": 1}, "Additional properties are not allowed"),
    ],
)
def test_arguments_are_checked_against_the_schema(args: dict[str, Any], says: str) -> None:
    assert says in schema_problems(args, SCHEMA)
    assert bool(schema_problems(args, SCHEMA)) == bool(says)


@pytest.mark.parametrize(
    "schema", [{"type": "nonsense"}, {"properties": 7}, {"properties": {"a": {"pattern": "("}}}]
)
def test_invalid_schema_refuses_everything(schema: dict[str, object]) -> None:
    assert schema_problems({"a": "x"}, schema)
