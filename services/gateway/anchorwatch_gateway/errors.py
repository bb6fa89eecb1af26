"""Errors as clients see them: one shape ``{code, message, hint}``, never a traceback."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from anchorwatch.core.agents import hint_of
from anchorwatch.core.errors import AnchorWatchError, BadInput, Fenced, IdempotencyConflict, Unavailable
from anchorwatch.core.faults import problem_of
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from anchorwatch_gateway.requests import FORMS

RETRY_AFTER_S = 1
FIELDS_SHOWN_MAX = 20
SEE = "see /openapi.json, or docs/api.md"


class Unauthorized(AnchorWatchError):
    """The bearer token is missing or wrong."""

    code = "unauthorized"
    http_status = 401


class BadRequest(BadInput):
    """The request cannot be read."""

    code = "bad_request"
    http_status = 400


class HeadersTooLarge(BadRequest):
    """The request's headers are larger than the limit."""

    code = "headers_too_large"
    http_status = 431


class RequestTooSlow(BadRequest):
    """The request did not arrive in time."""

    code = "request_too_slow"
    http_status = 408


class Problem(BaseModel):
    """An error. ``code`` is stable; ``hint`` says what to do."""

    code: str
    message: str
    hint: str = ""


class FieldProblem(BaseModel):
    """An invalid field, and what is allowed."""

    field: str
    problem: str


class ValidationProblem(Problem):
    """A request with invalid fields."""

    fields: list[FieldProblem] = Field(default_factory=list)


class ConflictProblem(Problem):
    """A conflict. ``first_body_sha256``: if an idempotency key was used before with another body."""

    first_body_sha256: str | None = None


PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The request cannot be read"},
    401: {"model": Problem, "description": "The bearer token is missing or wrong"},
    404: {"model": Problem, "description": "Not found"},
    408: {"model": Problem, "description": "The body did not arrive in time"},
    413: {"model": Problem, "description": "Larger than the limit"},
    422: {"model": ValidationProblem, "description": "Invalid input"},
    431: {"model": Problem, "description": "The headers are larger than the limit"},
    500: {"model": Problem, "description": "Internal error, or a damaged record"},
    503: {"model": Problem, "description": "A service that the request needs does not answer; try again"},
}
"""Errors of every endpoint below `/api`."""
CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"model": ConflictProblem, "description": "Conflict"},
    410: {"model": Problem, "description": "The session was deleted"},
}
"""Errors of endpoints that write, besides."""


def problem(
    status: int,
    code: str,
    message: str,
    hint: str = "",
    *,
    extra: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """An error response."""
    content = {"code": code, "message": message, "hint": hint, **(extra or {})}
    return JSONResponse(content, status, dict(headers or {}))


def from_error(error: AnchorWatchError) -> JSONResponse:
    """The response for an error of this project."""
    extra = {}
    if isinstance(error, IdempotencyConflict):
        extra["first_body_sha256"] = error.first_body_sha256
    headers = {}
    if isinstance(error, Unavailable | Fenced):
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    return problem(error.http_status, error.code, error.message, error.hint, extra=extra, headers=headers)


def install(app: FastAPI, log: structlog.stdlib.BoundLogger) -> None:
    """Answer every exception in one shape."""

    async def ours(_request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, AnchorWatchError)  # noqa: S101 - registered for these alone
        if error.http_status >= HTTPStatus.INTERNAL_SERVER_ERROR and not error.retryable:
            log.error("request.failed", code=error.code, reason=str(error))
        return from_error(error)

    async def invalid(_request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for these alone
        return from_validation(error.errors())

    async def http(_request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for these alone
        return from_http(error)

    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        incident = secrets.token_hex(6)
        log.error(
            "request.crashed", incident=incident, method=request.method, path=request.url.path, exc_info=error
        )
        return problem(
            500, "internal", "internal error", f"the gateway's log has the details under incident {incident}"
        )

    app.add_exception_handler(AnchorWatchError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, unexpected)


def from_validation(errors: Sequence[Any]) -> JSONResponse:
    """The response for invalid fields, each with its problem; values are not repeated."""
    fields = [
        {"field": _field(each["loc"]), "problem": problem_of(each, FORMS)}
        for each in errors[:FIELDS_SHOWN_MAX]
    ]
    first = fields[0] if fields else {"field": "the request", "problem": "is invalid"}
    message = f"{first['field']} {first['problem']}"
    if len(errors) > 1:
        message += f" (and {len(errors) - 1} more)"
    return problem(422, "bad_input", message, hint_of(errors) or SEE, extra={"fields": fields})


def _field(place: Sequence[Any]) -> str:
    """The field's name as the client wrote it, or the part of the request if that is invalid as a whole."""
    part, *names = (str(each) for each in place)
    return ".".join(names) or f"the {part}"


def from_http(error: HTTPException) -> JSONResponse:
    """The response for a request that the framework refuses."""
    codes = {
        404: ("not_found", "unknown path", SEE),
        405: ("method_not_allowed", "the method is not allowed here", SEE),
        400: ("bad_request", "the request cannot be read", "send JSON as UTF-8"),
    }
    default = (HTTPStatus(error.status_code).phrase.lower().replace(" ", "_"), str(error.detail), "")
    code, message, hint = codes.get(error.status_code, default)
    return problem(error.status_code, code, message, hint, headers=error.headers)
