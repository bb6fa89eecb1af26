"""A request that cannot be taken: which field, and what is allowed, without the check's own terms."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
import structlog
from anchorwatch.core.names import NAME_PATTERN
from anchorwatch.settings import Settings
from anchorwatch_gateway.app import make
from anchorwatch_gateway.requests import FORMS
from fastapi import FastAPI


@pytest.fixture
def app() -> FastAPI:
    """The application without its guard: a refused request needs no part but the settings."""
    made = make(structlog.stdlib.get_logger("test"))
    made.state.parts = SimpleNamespace(settings=Settings())
    return made


EVENT = {"source": "fleet", "type": "instance.dead"}
SESSION = {"name": "fleet", "agent": "fleet"}


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("events", {**EVENT, "source": "a b"}, "source must be 1-64 letters, digits, '_' or '-'"),
        ("events", {**EVENT, "type": "a..b"}, "type must be 1-8 words of letters, digits, '_' and '-' with dots between"),
        ("events", {**EVENT, "priority": "P9"}, "priority must be P0, P1 or P2"),
        ("events", {**EVENT, "id": "a b"}, "id must be 1-128 printable ASCII characters without a space"),
        ("events", {**EVENT, "typo": 1}, "typo is not a known field"),
        ("events", {"source": "fleet"}, "type is missing"),
        ("sessions", {**SESSION, "name": "Fleet"}, "name must be 1-63 characters of a-z, 0-9 and '-'"),
        ("sessions", {**SESSION, "objectives": [""]}, "objectives.0 must not be empty"),
        ("sessions", {**SESSION, "objectives": ["x"] * 33}, "objectives must have at most 32 entries"),
        ("sessions", {**SESSION, "constraints": ["x" * 1001]}, "constraints.0 must have at most 1000 characters"),
        ("sessions", [], "the body must be an object"),
    ],
)  # fmt: skip
async def test_invalid_body_names_field_and_problem(app: FastAPI, path: str, body: Any, said: str) -> None:
    answer = await ask(app, "POST", f"/api/{path}", body)
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_input")
    assert answer.json()["message"].startswith(said)
    (field,) = answer.json()["fields"]
    assert f"{field['field']} {field['problem']}" == answer.json()["message"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("limit=0", "limit must be at least 1"),
        ("limit=201", "limit must be at most 200"),
        ("limit=x", "limit must be a whole number"),
        ("order=up", "order must be asc or desc"),
    ],
)
async def test_invalid_query_names_field_and_problem(app: FastAPI, query: str, said: str) -> None:
    assert (await ask(app, "GET", f"/api/effects?{query}")).json()["message"] == said


def test_every_pattern_has_a_description(app: FastAPI) -> None:
    assert set(patterns(app.openapi())) <= {f"^{NAME_PATTERN}$", *FORMS}


def patterns(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("pattern"), str):
            yield value["pattern"]
        for each in value.values():
            yield from patterns(each)
    elif isinstance(value, list):
        for each in value:
            yield from patterns(each)


async def ask(app: FastAPI, method: str, path: str, body: Any = None) -> httpx2.Response:
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.request(method, path, json=body)
