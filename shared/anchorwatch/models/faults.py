"""Classifies an endpoint's error: retry later, never, or the request is too large.

Endpoints agree on little but the status: an error comes as ``{"error": {…}}``, as ``{"error": "text"}``, flat (vLLM), as
FastAPI's ``detail``, as HTML, with status 200. Context overflow alone has three shapes, and each must be recognised: it is the
one error that compaction fixes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

from anchorwatch.models.port import ContextOverflow, ModelRefused, ModelUnavailable
from anchorwatch.models.text import brief

Fault = ModelUnavailable | ModelRefused | ContextOverflow
Redact = Callable[[str], str]

RETRY_AFTER_S_MAX = 86_400.0
_TOKENS_MAX = 10**9

KEY_HINT = "check ANCHORWATCH_MODEL_KEY: the endpoint does not accept it for this"
NAME_HINT = "check ANCHORWATCH_MODEL_NAME and ANCHORWATCH_MODEL_URL: the endpoint does not know one of them"
URL_HINT = "check ANCHORWATCH_MODEL_URL: it must end where /chat/completions begins, most often with /v1"
QUOTA_HINT = "the account of ANCHORWATCH_MODEL_KEY has no credit left"
SIZE_HINT = (
    "lower ANCHORWATCH_CONTEXT_TOKENS_MAX or ANCHORWATCH_COMPLETION_TOKENS_MAX to the endpoint's limit"
)
REQUEST_HINT = "the endpoint rejects this request; its own message says why"

_RETRYABLE = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
}
_DENIED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_DENIED_CODES = {"invalid_api_key", "authentication_error", "permission_error", "invalid_authentication"}
_UNKNOWN_MODEL_CODES = {"model_not_found", "model_not_supported", "notfounderror"}
_QUOTA_CODES = {"insufficient_quota", "billing_hard_limit_reached"}
_OVERFLOW_CODES = {"context_length_exceeded", "exceed_context_size_error", "context_window_exceeded"}
_OVERFLOW_TEXT = re.compile(
    r"maximum context length|context[ _](?:length|size|window)|available context|maximum model length"
    r"|(?:prompt|input|request) (?:is |are )?too (?:long|many tokens)|reduce the length of the (?:messages|prompt)",
    re.IGNORECASE,
)
_TOKENS_TEXT = re.compile(
    r"(?:requested|resulted in|has|contains|prompt \(length|request \()\s*(?:about )?(\d{1,9})(?:\s|\)|$)",
    re.IGNORECASE,
)
_PROMPT_TEXT = re.compile(r"(\d{1,9}) (?:tokens )?in (?:the |your )?(?:messages|prompt|input)", re.IGNORECASE)
_LIMIT_TEXT = re.compile(
    r"(?:maximum context length|context (?:length|size|window)|maximum model length)(?: is| of|:)? ?\(?(\d{1,9})\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Said:
    """The content of an error body, whatever its shape."""

    text: str
    codes: frozenset[str]
    status: int | None
    tokens: int | None
    limit: int | None = None


def fault_of(
    status: int,
    body: object,
    *,
    redact: Redact,
    retry_after_s: float | None = None,
    place: str = "the endpoint",
    words: str = "",
) -> Fault:
    """The error of an answer.

    ``status`` as sent; an error body with status 200 is judged by the status it contains. ``body``: parsed
    JSON, or text. ``words``: this endpoint's own text for a too large request.
    """
    said = _read(body)
    if status < HTTPStatus.MULTIPLE_CHOICES and said.status is not None:
        status = said.status
    text = redact(brief(said.text))
    what = f"{place} answered {status}" + (f": {text}" if text else "")
    if _is_overflow(status, said, words):
        return ContextOverflow(what, hint=SIZE_HINT, tokens=said.tokens, limit=said.limit)
    if status in _DENIED or said.codes & _DENIED_CODES:
        return ModelRefused(what, hint=KEY_HINT, lasting=True)
    if status == HTTPStatus.PAYMENT_REQUIRED or said.codes & _QUOTA_CODES:
        return ModelRefused(what, hint=QUOTA_HINT, lasting=True)
    if status == HTTPStatus.NOT_FOUND or said.codes & _UNKNOWN_MODEL_CODES:
        return ModelRefused(what, hint=NAME_HINT, lasting=True)
    if (
        status in _RETRYABLE
        or status >= HTTPStatus.INTERNAL_SERVER_ERROR
        or status < HTTPStatus.MULTIPLE_CHOICES
    ):
        return ModelUnavailable(what, retry_after_s=retry_after_s)
    if status < HTTPStatus.BAD_REQUEST:
        return ModelRefused(what, hint=f"{URL_HINT}; redirects are not followed", lasting=True)
    return ModelRefused(what, hint=REQUEST_HINT)


def names_an_error(body: Mapping[str, Any]) -> bool:
    """Whether a body with status 200 is an error."""
    return bool(body.get("error")) or body.get("object") == "error"


def parse_body(content: bytes) -> object:
    """The parsed JSON, or the text if it is not JSON."""
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds to wait, as the headers say: ``retry-after-ms``, or ``retry-after`` in seconds or as a date; else None."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / unit
        except ValueError:
            seconds = _seconds_until(value, now or datetime.now(UTC))
        if math.isfinite(seconds):
            return min(max(seconds, 0.0), RETRY_AFTER_S_MAX)
    return None


def _seconds_until(date: str, now: datetime) -> float:
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, TypeError, OverflowError):
        return math.nan
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - now).total_seconds()


def _is_overflow(status: int, said: _Said, words: str) -> bool:
    if said.codes & _OVERFLOW_CODES or status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return True
    # A rate limit may mention tokens and context too; waiting resolves it.
    if status in _DENIED or status in {HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS}:
        return False
    text = said.text[:4096]
    return _OVERFLOW_TEXT.search(text) is not None or bool(words and words.lower() in text.lower())


def _read(body: object) -> _Said:
    error = body
    if isinstance(body, Mapping):
        error = body.get("error") or body
    if isinstance(error, Mapping):
        text = next((error[key] for key in ("message", "detail", "error", "msg") if error.get(key)), "")
        if not isinstance(text, str):
            text = json.dumps(text, default=str, ensure_ascii=False)
        codes = frozenset(
            value.lower() for key in ("code", "type") if isinstance(value := error.get(key), str)
        )
        tokens = _count(error.get("n_prompt_tokens")) or _tokens_in(text)
        limit = _count(error.get("n_ctx")) or _number_in(text, _LIMIT_TEXT)
        return _Said(text, codes, _status(error), tokens, limit)
    if isinstance(error, str):
        text = "a web page, not an API" if looks_like_html(error) else error
        return _Said(text, frozenset(), None, _tokens_in(text), _number_in(text, _LIMIT_TEXT))
    return _Said("", frozenset(), None, None)


def looks_like_html(text: str) -> bool:
    """Whether a body is a web page: a login page, a proxy's error, or the root of a server."""
    head = text[:512].lstrip().lower()
    return head.startswith(("<!doctype", "<html", "<head", "<?xml")) or "<html" in head


def _status(error: Mapping[str, Any]) -> int | None:
    for key in ("code", "status", "status_code"):
        value = error.get(key)
        if isinstance(value, str) and re.fullmatch(r"[45]\d\d", value):
            value = int(value)
        if isinstance(value, int) and HTTPStatus.BAD_REQUEST <= value < 600:  # noqa: PLR2004 - the last of the 5xx
            return value
    return None


def _tokens_in(text: str) -> int | None:
    # The requested number may include the answer's tokens; prefer the number without them.
    return _number_in(text, _PROMPT_TEXT) or _number_in(text, _TOKENS_TEXT)


def _number_in(text: str, pattern: re.Pattern[str]) -> int | None:
    found = pattern.search(text[:4096])
    return _count(int(found[1])) if found else None


def _count(value: object) -> int | None:
    return (
        value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _TOKENS_MAX else None
    )
