from __future__ import annotations

import socket
from typing import Any

import pytest
from anchorwatch.executor.schema import PROBLEM_CHARS_MAX, PROBLEMS_MAX, schema_problems

CATASTROPHIC = "^(a+)+$"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("reference", ["$ref", "$dynamicRef"])
def test_remote_reference_is_refused_unfetched(reference: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        found = schema_problems({"a": 1}, {"properties": {"a": {reference: url}}})
        with pytest.raises(BlockingIOError):
            server.accept()
    assert found.startswith("the tool's schema is invalid")
    assert url in found


def test_reference_inside_the_schema_is_followed() -> None:
    tree: dict[str, object] = {
        "$ref": "#/$defs/node",
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
    }
    assert schema_problems({"next": {"next": {}}}, tree) == ""
    assert schema_problems({"next": {"next": 7}}, tree) == 'next.next: 7 is not of type "object"'


# A backtracking matcher needs longer than any process lives for each of these.
@pytest.mark.timeout(20)
def test_pattern_takes_linear_time() -> None:
    schema: dict[str, object] = {
        "properties": {"a": {"pattern": CATASTROPHIC}},
        "patternProperties": {CATASTROPHIC: {"type": "string"}},
    }
    long = "a" * 10_000
    assert schema_problems({"a": long, long: long}, schema) == ""
    assert schema_problems({f"{long}!": 7}, schema) == ""
    assert schema_problems({"a": f"{long}!"}, schema).startswith("a: ")
    assert schema_problems({long: 7}, schema)


@pytest.mark.parametrize("pattern", ["^(?=a)", r"(a)\1", "(", "x{1000}{1000}{1000}"])
def test_pattern_without_an_automaton_is_refused(pattern: str) -> None:
    found = schema_problems({"a": "aa"}, {"properties": {"a": {"pattern": pattern}}})
    assert found.startswith("the tool's schema is invalid: properties.a.pattern: ")
    assert "regex" in found


@pytest.mark.parametrize("schema", [{"enum": [{1}]}, {1: 2, "a": 3}, {"type": 7}, {"$ref": "#/$defs/absent"}])
def test_invalid_schema_refuses_all_arguments(schema: dict[str, object]) -> None:
    assert schema_problems({}, schema).startswith("the tool's schema is invalid: ")


def test_problems_are_few_and_short() -> None:
    schema: dict[str, object] = {"properties": {"a": {"items": {"const": "x"}}}}
    args: dict[str, Any] = {"a": ["y" * 10_000] * 50}
    assert (
        schema_problems(args, {"properties": {"a": {"items": {"type": "integer"}}}}).count("; ")
        == PROBLEMS_MAX - 1
    )
    assert len(schema_problems(args, {"const": 7})) <= PROBLEM_CHARS_MAX
    assert schema_problems(args, schema).startswith("a.0: ")


def test_format_is_an_annotation() -> None:
    assert schema_problems({"a": "x"}, {"properties": {"a": {"format": "email"}}}) == ""
