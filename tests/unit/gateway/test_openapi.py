"""The OpenAPI description: complete enough for a generated client. That it is true, `tests.support.openapi` checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.openapi import description

OPEN_FIELDS = {
    "AgentSpec.config",
    "AnchorChange.changes.FieldChange.from",
    "Control.more",
    "DecidedCall.arguments",
    "Effect.args",
    "Effect.data",
    "FieldChange.from",
    "FieldChange.to",
    "KeptState.facts",
    "LetterDetail.content",
    "Anchor.facts",
    "CurrentAnchor.facts",
    "ToolCallItem.args",
}
"""Fields with a content that only an agent, a pack or a publisher knows."""

Json = dict[str, Any]


def operations() -> Iterator[tuple[str, str, Json]]:
    for path, methods in description()["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_operations_have_unique_plain_names() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(names) == len(set(names)) > 50
    assert all(name.isidentifier() and "__" not in name for name in names)


def test_operations_say_what_they_do() -> None:
    assert not [path for path, _, operation in operations() if not operation.get("description")]


def test_every_path_below_api_needs_the_token() -> None:
    scheme = description()["components"]["securitySchemes"]
    assert {name: each["scheme"] for name, each in scheme.items()} == {"token": "bearer"}
    for path, _, operation in operations():
        security = operation.get("security", [])
        assert security == ([{"token": []}] if path.startswith(("/api/", "/metrics")) else []), path


def test_every_answer_is_described() -> None:
    for path, method, operation in operations():
        good = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
        assert good, path
        for answer in good:
            for media_type, content in answer["content"].items():
                if media_type == "application/json":
                    assert content["schema"].keys() & {"$ref", "anyOf"}, (method, path)


def test_every_field_is_described() -> None:
    open_fields = {
        f"{name}.{field}"
        for name, schema in description()["components"]["schemas"].items()
        for field, described in schema.get("properties", {}).items()
        if _is_open(described)
    }
    assert open_fields - OPEN_FIELDS == set()


def _is_open(schema: Json) -> bool:
    """Whether any value, or any object, fits."""
    if schema.get("type") == "object":
        return schema.get("additionalProperties", True) is True
    if any(_is_open(each) for each in schema.get("anyOf", ())):
        return True
    if schema.get("type") == "array":
        return _is_open(schema["items"])
    return not schema.keys() & {"type", "$ref", "anyOf", "oneOf", "enum", "const", "allOf"}
