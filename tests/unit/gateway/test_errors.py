"""How a fault looks from outside: an incident id, and nothing of the inside."""

from __future__ import annotations

import httpx2
import pytest
import structlog
from anchorwatch.core.errors import Damaged, IdempotencyConflict, Unavailable
from anchorwatch_gateway import errors
from fastapi import FastAPI
from structlog.testing import capture_logs


def an_app(error: Exception) -> FastAPI:
    app = FastAPI()
    errors.install(app, structlog.stdlib.get_logger("test"))

    @app.get("/")
    async def fails() -> None:
        raise error

    return app


async def ask(error: Exception) -> httpx2.Response:
    transport = httpx2.ASGITransport(an_app(error), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.get("/")


async def test_unexpected_error_is_logged_under_an_incident_id() -> None:
    with capture_logs() as logs:
        answer = await ask(ZeroDivisionError("the secret inside"))
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal"
    assert "secret" not in answer.text
    (logged,) = logs
    assert logged["incident"] in answer.json()["hint"]
    assert isinstance(logged["exc_info"], ZeroDivisionError)


@pytest.mark.parametrize(
    ("error", "status", "more"),
    [
        (Unavailable("away", hint="wait"), 503, {"code": "unavailable", "message": "away", "hint": "wait"}),
        (Damaged("broken"), 500, {"code": "damaged", "message": "broken"}),
        (
            IdempotencyConflict("other body", first_body_sha256="abc"),
            409,
            {"code": "idempotency_conflict", "first_body_sha256": "abc"},
        ),
        (
            errors.Unauthorized(),
            401,
            {"code": "unauthorized", "message": "The bearer token is missing or wrong."},
        ),
    ],
)
async def test_error_keeps_code_message_hint_and_status(
    error: Exception, status: int, more: dict[str, str]
) -> None:
    with capture_logs():
        answer = await ask(error)
    assert answer.status_code == status
    assert answer.json().items() >= more.items()
    assert ("Retry-After" in answer.headers) == (status == 503)
