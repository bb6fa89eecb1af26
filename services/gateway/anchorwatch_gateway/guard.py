"""The guard of the API: size limits, the bearer token, the caller's name, and a body that is valid JSON.

Plain ASGI around the application: no route can be reached past it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import math
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, NoReturn

import structlog
from anchorwatch.core.errors import AnchorWatchError, BadInput, TooLarge
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anchorwatch_gateway.errors import BadRequest, HeadersTooLarge, RequestTooSlow, Unauthorized, from_error

BODY_BYTES_MAX = 1024 * 1024
HEADER_BYTES_MAX = 16 * 1024
DRAIN_BYTES_MAX = 8 * BODY_BYTES_MAX
DRAIN_S_MAX = 2.0
BODY_S_MAX = 30.0
"""How long the body of a request may take."""
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json"})
METRICS_PATH = "/metrics"
HOOKS_PATH = "/hooks/"
"""Paths below it check a signature of their own, in place of the token."""
RAW_PATHS = ("/api/events", HOOKS_PATH)
"""Bodies of paths that begin so may be anything: the route reads them."""
ONCE_ONLY = (b"authorization", b"idempotency-key", b"content-length", b"content-type", b"anchorwatch-by")
ONCE_ONLY_PREFIXES = (b"ce-", b"webhook-", b"x-hub-signature", b"x-github-")

JSON_DEPTH_MAX = 32
INTEGER_MAX = 2**63 - 1
JSON_HINT = "send a JSON object as UTF-8"

NAME_HEADER = "Anchorwatch-By"
UNNAMED = "a person"
NAME_FORM = "1-64 letters, digits, spaces and . _ @ + -, without a space at either end"
_NAME = re.compile(r"[\w.@+-](?:[\w.@+ -]{0,62}[\w.@+-])?")
_caller: ContextVar[str] = ContextVar("caller", default=UNNAMED)

OnAnswer = Callable[[str, str, int], None]
"""Called for each answer with its method, route and status."""


def by() -> str:
    """The name that the caller of the current request gave, for the records that the request writes.

    The token is proof; the name is a claim of someone who holds the token.
    """
    return _caller.get()


class Guard:
    """The application inside its guard."""

    def __init__(
        self,
        app: ASGIApp,
        token: str,
        on_answer: OnAnswer,
        log: structlog.stdlib.BoundLogger,
        *,
        metrics_open: bool = False,
    ) -> None:
        self._app = app
        self._open_paths = OPEN_PATHS | {METRICS_PATH} if metrics_open else OPEN_PATHS
        self._expected = f"Bearer {token}".encode()
        self._on_answer = on_answer
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # No websockets, and nothing to do at startup and shutdown.
            return
        answer, incoming = _Answer(send), _Incoming(receive)
        try:
            body = await self._admit(scope, incoming)
            await self._app(scope, _replay(body, receive), answer.send)
        except AnchorWatchError as error:
            response = from_error(error)
            if not incoming.whole:
                await incoming.drain()
                response.headers["Connection"] = "close"
            await response(scope, receive, answer.send)
        except Exception as error:
            # The application has logged it and answered; the framework raises it again for servers that do not.
            if not answer.status:
                raise
            self._log.debug("request.raised_after_answer", error=repr(error))
        finally:
            self._on_answer(scope["method"], _route(scope), answer.status)

    async def _admit(self, scope: Scope, incoming: _Incoming) -> bytes:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if sum(len(name) + len(value) for name, value in headers) > HEADER_BYTES_MAX:
            raise HeadersTooLarge(f"the headers are larger than {HEADER_BYTES_MAX} bytes")
        names = [name for name, _ in headers]
        for name in set(names):
            if (name in ONCE_ONLY or name.startswith(ONCE_ONLY_PREFIXES)) and names.count(name) > 1:
                raise BadRequest(f"the header {name.decode()} occurs more than once")
        if b"content-length" in names and b"transfer-encoding" in names:
            # A proxy that believes the other one of the two would see other requests than this server.
            raise BadRequest(
                "the request has both Content-Length and Transfer-Encoding", hint="send one of them"
            )
        if scope["path"] not in self._open_paths and not scope["path"].startswith(HOOKS_PATH):
            self._authenticate(dict(headers))
            _note_caller(dict(headers))
        body = await incoming.read(dict(headers).get(b"content-length", b""))
        if body and scope["method"] in ("POST", "PUT", "PATCH") and not scope["path"].startswith(RAW_PATHS):
            scope.setdefault("state", {})["json"] = parse_json(body)
            scope["headers"] = _declared_json(headers)
        return body

    def _authenticate(self, headers: dict[bytes, bytes]) -> None:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        given = b"Bearer " + token.strip() if scheme.lower() == b"bearer" else b""
        if not hmac.compare_digest(given, self._expected):
            raise Unauthorized(
                "the bearer token is missing or wrong",
                hint="send `Authorization: Bearer TOKEN`; `anchorwatch credentials api` prints it",
            )


class _Answer:
    """Passes an answer on and remembers its status (0: not started)."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


class _Incoming:
    """The request's body as it arrives. ``whole``: its end was received."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.whole = False

    async def read(self, declared: bytes) -> bytes:
        """The whole body.

        Raises:
            TooLarge: it exceeds the limit, or declares to. BadRequest: it ended early. RequestTooSlow.
        """
        if declared.isdigit() and int(declared[:20]) > BODY_BYTES_MAX:
            raise _too_large()
        chunks, size = [], 0
        try:
            async with asyncio.timeout(BODY_S_MAX):
                while not self.whole:
                    chunk = await self._next()
                    size += len(chunk)
                    if size > BODY_BYTES_MAX:
                        raise _too_large()
                    chunks.append(chunk)
        except TimeoutError:
            raise RequestTooSlow(f"the body did not arrive within {BODY_S_MAX:g} s") from None
        return b"".join(chunks)

    async def drain(self) -> None:
        """Read the rest of a refused body, within bounds.

        A client that is still sending does not read: closing the connection now would lose the answer.
        """
        size = 0
        with contextlib.suppress(TimeoutError, BadRequest):
            async with asyncio.timeout(DRAIN_S_MAX):
                while not self.whole and size < DRAIN_BYTES_MAX:
                    size += len(await self._next())

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] != "http.request":
            self.whole = True
            raise BadRequest("the client disconnected before its request was complete")
        self.whole = not message.get("more_body", False)
        chunk: bytes = message.get("body", b"")
        return chunk


def _too_large() -> TooLarge:
    return TooLarge(
        f"the body is larger than {BODY_BYTES_MAX} bytes", hint="send less, or in several requests"
    )


def _replay(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that returns the body first, then later messages."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return pending.pop() if pending else await receive()

    return again


def _declared_json(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers with the content type JSON: the body was parsed as JSON whatever type the client named."""
    kept = [(name, value) for name, value in headers if name != b"content-type"]
    return [*kept, (b"content-type", b"application/json")]


def _route(scope: Scope) -> str:
    route: Any = scope.get("route")
    return str(getattr(route, "path", "")) or ("refused" if "route" not in scope else "unmatched")


def _note_caller(headers: Mapping[bytes, bytes]) -> None:
    """Raises BadRequest: the header holds no valid name."""
    try:
        name = headers.get(NAME_HEADER.lower().encode(), UNNAMED.encode()).decode()
    except UnicodeDecodeError:
        name = ""
    if not _NAME.fullmatch(name):
        raise BadRequest(f"the header {NAME_HEADER} holds no valid name", hint=f"send {NAME_FORM}, in UTF-8")
    _caller.set(name)


# ---------------------------------------------------------------- JSON


def parse_json(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Read a request body: finite numbers of 64 bits, no NUL, no lone surrogates, bounded depth, no repeated keys.

    Raises:
        BadRequest: not valid JSON. BadInput: valid JSON that the journal cannot keep.
    """
    try:
        value = json.loads(
            data.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeated_keys
        )
    except UnicodeDecodeError:
        raise BadRequest("the body is not UTF-8", hint=JSON_HINT) from None
    except RecursionError:
        raise BadInput(f"the body is nested deeper than {JSON_DEPTH_MAX} levels") from None
    except ValueError as error:
        # Not a BadInput of the hooks: a syntax error, or a number of thousands of digits.
        raise BadRequest(f"the body is not valid JSON: {str(error)[:120]}", hint=JSON_HINT) from None
    _check(value, JSON_DEPTH_MAX)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise BadRequest(f"{name} is not valid JSON", hint="numbers must be finite")


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise BadInput("a key occurs twice in one object", hint="readers would disagree on which one counts")
    return value


def _check(value: object, levels_left: int) -> None:
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, int | float):
        _check_number(value)
    elif isinstance(value, list | dict):
        if levels_left == 0:
            raise BadInput(f"the body is nested deeper than {JSON_DEPTH_MAX} levels")
        for each in value.values() if isinstance(value, dict) else value:
            _check(each, levels_left - 1)
        for key in value if isinstance(value, dict) else ():
            _check_text(key)


def _check_number(number: float) -> None:
    if (type(number) is int and abs(number) > INTEGER_MAX) or not math.isfinite(number):
        raise BadInput("a number does not fit into 64 bits", hint="send it as text")


def _check_text(text: str) -> None:
    if "\0" in text:
        raise BadInput("a text holds a NUL character", hint="remove it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput("a text holds half of a surrogate pair", hint="send whole characters") from None
