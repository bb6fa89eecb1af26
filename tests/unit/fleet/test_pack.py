from __future__ import annotations

import math
from typing import Any

import pytest
from anchorwatch.core.errors import BadInput
from anchorwatch.core.tools import EffectClass, Risk, ToolSpec
from anchorwatch.packs import registry
from anchorwatch_fleet import PACK, SESSION, default_agent

AGENT = default_agent()
TOOLS = {tool.name: tool for tool in PACK.tools(AGENT)}


def test_pack_is_found_by_its_name() -> None:
    assert registry.load("fleet") is PACK


def test_agent_that_ships_is_valid() -> None:
    PACK.check(AGENT)
    assert (AGENT.name, AGENT.pack, AGENT.config["fleet_limit"], SESSION) == (
        "fleet-keeper",
        "fleet",
        6,
        "fleet",
    )
    assert AGENT.heartbeat_s is None


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"fleet_limit": 0}, "config.fleet_limit"),
        ({"fleet_limt": 6}, "fleet_limit, fleet_min"),
        ({"fleet_limit": 2, "fleet_min": 3}, "fleet_min is above"),
    ],
)
def test_unusable_setting_is_named_with_the_available_ones(config: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as caught:
        PACK.check(AGENT.model_copy(update={"config": config}))

    assert words in str(caught.value)


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
def test_every_tool_requires_each_argument_and_takes_no_other(tool: ToolSpec) -> None:
    properties = tool.parameters["properties"]
    assert isinstance(properties, dict)
    assert tool.parameters["required"] == list(properties)
    assert tool.parameters["additionalProperties"] is False
    assert all(each["description"] and each["type"] != "boolean" for each in properties.values())


def test_launch_requires_an_urgency_and_respects_the_limit() -> None:
    properties: Any = TOOLS["launch_instances"].parameters["properties"]

    assert properties["launch_priority"]["enum"] == ["normal", "emergency"]
    assert (properties["count"]["minimum"], properties["count"]["maximum"]) == (1, 6)


def test_effect_classes_match_the_abilities_of_the_yard() -> None:
    assert {name: tool.effect_class for name, tool in TOOLS.items()} == {
        "launch_instances": EffectClass.IDEMPOTENT,
        "stop_instance": EffectClass.IDEMPOTENT,
        "restart_instance": EffectClass.RECONCILABLE,
        "instance_logs": EffectClass.READ,
        "notify_human": EffectClass.IDEMPOTENT,
        "remember": EffectClass.IDEMPOTENT,
        "recall": EffectClass.READ,
        "read_result": EffectClass.READ,
        "schedule_next_check": EffectClass.IDEMPOTENT,
        "save_report": EffectClass.IDEMPOTENT,
    }
    assert {tool.name for tool in TOOLS.values() if tool.pool == "memory"} == {
        "remember",
        "recall",
        "read_result",
    }


def test_calls_that_conflict_share_a_resource() -> None:
    assert (
        PACK.resource("launch_instances", {"count": 2})
        == PACK.resource("launch_instances", {"count": 3})
        == "fleet"
    )
    assert PACK.resource("stop_instance", {"instance_id": "w-1"}) == "instance/w-1"
    assert PACK.resource("restart_instance", {"instance_id": "w-1"}) == "instance/w-1"


def test_invariants_name_only_existing_tools_and_observed_facts() -> None:
    for each in PACK.invariants(AGENT):
        assert set(each.tools) <= set(TOOLS)
        assert each.message


def test_prompt_ends_with_rules_that_exclude_the_old_misreading() -> None:
    role, rules = PACK.prompt(AGENT)

    assert "unknown: the source did not answer" in role
    assert "EMERGENCY" in rules
    assert 'It never means "no demand"' in rules
    assert "At most 6 instances" in rules


def test_notices_and_checks_are_allowed_while_facts_are_unknown() -> None:
    """Only what acts on the fleet must cite an observation, and only that counts as having done something about an emergency."""
    blind = {tool.name for tool in TOOLS.values() if tool.mutating and math.isinf(tool.observation_age_max_s)}
    assert blind == {"notify_human", "schedule_next_check", "save_report", "remember"}
    acting = {tool.name for tool in TOOLS.values() if tool.mutating and tool.risk is not Risk.NONE}
    assert acting == {"launch_instances", "stop_instance", "restart_instance"}
