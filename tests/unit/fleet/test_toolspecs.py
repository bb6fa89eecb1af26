"""The fleet's tools are such that small models use them rightly: one purpose, required enums, an example."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from anchorwatch.context import prompt
from anchorwatch.core.facts import Observation
from anchorwatch.core.session import SessionState
from anchorwatch.core.tools import ToolSpec
from anchorwatch.executor.schema import schema_problems
from anchorwatch_fleet import PACK, default_agent

AGENT = default_agent()
TOOLS = {tool.name: tool for tool in PACK.tools(AGENT)}
DESCRIPTION_CHARS_MAX = 300


@pytest.fixture(params=TOOLS)
def tool(request: pytest.FixtureRequest) -> ToolSpec:
    return TOOLS[request.param]


def members(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from schema["properties"].items()


def test_its_example_is_a_call_that_its_schema_takes(tool: ToolSpec) -> None:
    assert tool.example is not None
    assert schema_problems(tool.example, tool.parameters) == ""


def test_arguments_are_described_and_required_and_not_boolean(tool: ToolSpec) -> None:
    schema: Mapping[str, Any] = tool.parameters
    assert schema["required"] == [name for name, _ in members(schema)]
    assert schema["additionalProperties"] is False
    for _, member in members(schema):
        assert member["type"] != "boolean"
        assert member["description"]


def test_tool_description_is_short(tool: ToolSpec) -> None:
    assert len(tool.description) <= DESCRIPTION_CHARS_MAX
    assert tool.description.partition(".")[0]


def test_model_is_shown_the_example_with_the_description(tool: ToolSpec) -> None:
    request = prompt.build(
        SessionState(), AGENT, PACK, (tool,), Observation("", {}, 0, ""), heartbeat_s=300
    )  # fmt: skip
    description = request.tools[0]["function"]["description"]
    assert description == f"{tool.description}\nExample: {json.dumps(tool.example)}"
