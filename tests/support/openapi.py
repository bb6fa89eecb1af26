"""Compares the gateway's answers with its OpenAPI description, in both directions: nothing missing, nothing undescribed."""

from __future__ import annotations

import copy
import functools
import re
from typing import Any

import httpx2
import jsonschema_rs
import structlog
from anchorwatch_gateway.app import make

Json = dict[str, Any]


@functools.cache
def description() -> Json:
    return make(structlog.stdlib.get_logger("test")).openapi()


async def check_answer(response: httpx2.Response) -> None:
    """Check a JSON answer; a response hook of an HTTP client.

    Raises:
        AssertionError: the answer is not what is described.
    """
    if response.headers.get("Content-Type") != "application/json":
        return
    await response.aread()
    request = response.request
    operation = _operation(request.method, request.url.path)
    if operation is None:
        return
    described = operation["responses"].get(str(response.status_code))
    assert described is not None, (
        f"{request.method} {request.url.path}: {response.status_code} is not described"
    )
    found = _problems(described["content"]["application/json"]["schema"], response.json())
    assert not found, f"{request.method} {request.url.path}: {found}"


def check_value(name: str, value: object) -> None:
    """Check a value against the described schema ``name``. Raises as `check_answer`."""
    found = _problems({"$ref": f"#/components/schemas/{name}"}, value)
    assert not found, f"{name}: {found}"


def _problems(schema: Json, value: object) -> list[str]:
    validator = jsonschema_rs.Draft202012Validator({**schema, "components": _closed_components()})
    return [f"{error.instance_path}: {error.message[:300]}" for error in validator.iter_errors(value)]


def _operation(method: str, path: str) -> Json | None:
    for template, operations in description()["paths"].items():
        if re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path) and method.lower() in operations:
            found: Json = operations[method.lower()]
            return found
    return None


@functools.cache
def _closed_components() -> Json:
    """The described schemas, where a field that is not described is an error."""
    components: Json = copy.deepcopy(description()["components"])
    for schema in components["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return components
