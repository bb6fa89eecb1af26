"""What every request passes before the application sees it: size, token, and a body that is JSON.

Plain ASGI around the application, so that nothing inside can be reached past it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Callable
from typing import Any

import structlog
from anchorwatch.core.errors import AnchorWatchError, TooLarge
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anchorwatch_gateway import caller, strict_json
from anchorwatch_gateway.errors import BadRequest, HeadersTooLarge, Unauthorized, from_error

BODY_BYTES_MAX = 1024 * 1024
HEADER_BYTES_MAX = 16 * 1024
DRAIN_BYTES_MAX = 8 * BODY_BYTES_MAX
DRAIN_S_MAX = 2.0
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/metrics", "/openapi.json"})
ONCE_ONLY = (b"authorization", b"idempotency-key", b"content-length", b"anchorwatch-by")

Counted = Callable[[str, str, int], None]
"""Told of each answer: method, route, status."""


class Guard:
    """The application behind its guard."""

    def __init__(self, app: ASGIApp, token: str, counted: Counted, log: structlog.stdlib.BoundLogger) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()
        self._counted = counted
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # No websockets, and nothing to do at start and end.
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
            # The application has answered and logged it; what comes out once more is for servers that do not.
            if not answer.status:
                raise
            self._log.debug("raised after its answer", error=repr(error))
        finally:
            self._counted(scope["method"], _route(scope), answer.status)

    async def _admit(self, scope: Scope, incoming: _Incoming) -> bytes:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if sum(len(name) + len(value) for name, value in headers) > HEADER_BYTES_MAX:
            raise HeadersTooLarge(f"the headers are larger than {HEADER_BYTES_MAX} bytes")
        names = [name for name, _ in headers]
        for name in ONCE_ONLY:
            if names.count(name) > 1:
                raise BadRequest(f"the header {name.decode()} stands more than once")
        if scope["path"] not in OPEN_PATHS:
            self._authenticate(dict(headers))
            caller.note(dict(headers))
        body = await incoming.read(dict(headers).get(b"content-length", b""))
        if body and scope["method"] in ("POST", "PUT", "PATCH"):
            scope.setdefault("state", {})["json"] = strict_json.parse(body)
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
    """Passes an answer on and remembers its status (0: none was begun)."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


class _Incoming:
    """The request's body as it comes in. ``whole``: its end was seen."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.whole = False

    async def read(self, declared: bytes) -> bytes:
        """All of it.

        Raises:
            TooLarge: it is above the limit, or declares to be. BadRequest: it ended early.
        """
        if declared.isdigit() and int(declared[:20]) > BODY_BYTES_MAX:
            raise _too_large()
        chunks, size = [], 0
        while not self.whole:
            chunk = await self._next()
            size += len(chunk)
            if size > BODY_BYTES_MAX:
                raise _too_large()
            chunks.append(chunk)
        return b"".join(chunks)

    async def drain(self) -> None:
        """Take in what is left of a body that is refused, within bounds.

        Whoever is still sending does not listen: a connection that ended now would take the answer with it.
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
            raise BadRequest("the client went away before its request was whole")
        self.whole = not message.get("more_body", False)
        chunk: bytes = message.get("body", b"")
        return chunk


def _too_large() -> TooLarge:
    return TooLarge(
        f"the body is larger than {BODY_BYTES_MAX} bytes", hint="send less, or in several requests"
    )


def _replay(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives the body again, and then whatever comes."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return pending.pop() if pending else await receive()

    return again


def _declared_json(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers with a content type of JSON: the body was read as such, whatever the client called it."""
    kept = [(name, value) for name, value in headers if name != b"content-type"]
    return [*kept, (b"content-type", b"application/json")]


def _route(scope: Scope) -> str:
    route: Any = scope.get("route")
    return str(getattr(route, "path", "")) or ("refused" if "route" not in scope else "unmatched")
