"""Simplifies JSON schemas of tools for endpoints that compile them into a grammar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KEPT = frozenset({"type", "enum", "const", "description", "required"})
_NESTED = frozenset({"anyOf", "oneOf", "allOf"})
_REFERS = frozenset({"$ref", "$dynamicRef"})


def plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without lengths, ranges, patterns and formats: names, types, enums and what is required.

    Grammar compilers refuse some of those, and then the whole request. Removed constraints are still checked before a
    tool runs. A schema with a reference becomes any value of its type, because the referenced path changes.
    """
    if _refers(schema):
        return {"type": "object"} if schema.get("type") == "object" else {}
    return _plain(schema)


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties" and isinstance(value, Mapping):
            # An object with an empty list of properties is refused too.
            if value:
                kept[key] = {name: _sub(each) for name, each in value.items()}
        elif key in {"items", "additionalProperties"}:
            kept[key] = _sub(value)
        elif key in _NESTED and isinstance(value, list):
            kept[key] = [_sub(each) for each in value]
        elif key in _KEPT:
            kept[key] = value
    if kept.get("type") == "object" and "properties" not in kept:
        kept.pop("additionalProperties", None)
        kept.pop("required", None)
    return kept


def _sub(value: object) -> Any:  # noqa: ANN401 - a schema, or true or false
    return _plain(value) if isinstance(value, Mapping) else value


def _refers(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(key in _REFERS or _refers(each) for key, each in value.items())
    return isinstance(value, list) and any(map(_refers, value))
