"""The guard alone, around an application that only tells what reached it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog
from anchorwatch_gateway.guard import BODY_BYTES_MAX, DRAIN_BYTES_MAX, Guard
from starlette.types import Message, Receive, Scope, Send

TOKEN = "s3cret-of-twenty-char"
MINE = [(b"authorization", b"Bearer s3cret-of-twenty-char")]


@dataclass
class Inside:
    """An application that answers 200 with the body that it got, or raises."""

    raises: Exception | None = None
    answers_first: bool = True
    bodies: list[bytes] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        self.bodies.append((await receive())["body"])
        if self.answers_first:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})
        if self.raises:
            raise self.raises


@dataclass
class Exchange:
    """One request and what came back."""

    inside: Inside = field(default_factory=Inside)
    sent: list[Message] = field(default_factory=list)
    counted: list[tuple[str, str, int]] = field(default_factory=list)
    taken: int = 0

    async def send(
        self,
        *chunks: bytes,
        method: str = "POST",
        path: str = "/api/x",
        headers: list[tuple[bytes, bytes]] | None = None,
        ends: bool = True,
    ) -> dict[str, Any]:
        incoming: list[Message] = [
            {"type": "http.request", "body": chunk, "more_body": not ends or left > 0}
            for left, chunk in zip(reversed(range(len(chunks))), chunks, strict=True)
        ] or [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Message:
            if not incoming:
                await asyncio.Event().wait()
            self.taken += 1
            return incoming.pop(0)

        async def send(message: Message) -> None:
            self.sent.append(message)

        guard = Guard(self.inside, TOKEN, lambda *answer: self.counted.append(answer), structlog.get_logger())
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": MINE if headers is None else headers,
        }
        await guard(scope, receive, send)
        answer: dict[str, Any] = json.loads(self.sent[1]["body"])
        return answer

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])


async def test_request_with_token_passes_with_its_body() -> None:
    exchange = Exchange()
    await exchange.send(b'{"a"', b": 1}")
    assert exchange.inside.bodies == [b'{"a": 1}']
    scope = exchange.inside.scopes[0]
    assert scope["state"]["json"] == {"a": 1}
    assert (b"content-type", b"application/json") in scope["headers"]
    assert exchange.counted == [("POST", "refused", 200)]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"")],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer s3cret-of-twenty-char2")],
        [(b"authorization", b"Bearer S3CRET-OF-TWENTY-CHAR")],
        [(b"authorization", b"Basic s3cret-of-twenty-char")],
        [(b"authorization", b"s3cret-of-twenty-char")],
        *([(b"authorization", b"Bearer " + TOKEN[:end].encode())] for end in range(1, len(TOKEN))),
        *(
            [(b"authorization", b"Bearer " + TOKEN[:at].encode() + b"\xff" + TOKEN[at + 1 :].encode())]
            for at in range(len(TOKEN))
        ),
    ],
)
async def test_request_without_token_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    exchange = Exchange()
    answer = await exchange.send(b"{}", headers=headers)
    assert (exchange.status, answer["code"]) == (401, "unauthorized")
    assert exchange.inside.bodies == []
    assert TOKEN not in str(answer)


async def test_token_scheme_ignores_case() -> None:
    exchange = Exchange()
    await exchange.send(headers=[(b"authorization", b"bearer  s3cret-of-twenty-char")])
    assert exchange.status == 200


async def test_two_tokens_are_refused() -> None:
    exchange = Exchange()
    answer = await exchange.send(headers=MINE * 2)
    assert (exchange.status, answer["code"]) == (400, "bad_request")


async def test_oversized_body_is_drained_and_refused() -> None:
    exchange = Exchange()
    chunk = b"x" * (BODY_BYTES_MAX // 2)
    answer = await exchange.send(*[chunk] * 6)
    assert (exchange.status, answer["code"]) == (413, "too_large")
    assert exchange.taken == 6
    assert (b"connection", b"close") in exchange.sent[0]["headers"]
    assert exchange.inside.bodies == []


async def test_endless_body_is_drained_up_to_a_limit() -> None:
    exchange = Exchange()
    chunk = b"x" * BODY_BYTES_MAX
    await exchange.send(*[chunk] * 20, ends=False)
    assert exchange.status == 413
    assert exchange.taken <= DRAIN_BYTES_MAX // BODY_BYTES_MAX + 3


async def test_oversized_content_length_is_refused_unread() -> None:
    for declared in (str(BODY_BYTES_MAX + 1).encode(), b"9" * 50):
        exchange = Exchange()
        await exchange.send(b"{}", headers=[*MINE, (b"content-length", declared)])
        assert exchange.status == 413


async def test_invalid_json_is_refused() -> None:
    exchange = Exchange()
    answer = await exchange.send(b"{")
    assert (exchange.status, answer["code"]) == (400, "bad_request")
    assert exchange.inside.bodies == []


async def test_exception_after_the_answer_is_swallowed() -> None:
    exchange = Exchange(Inside(raises=RuntimeError("answered and logged")))
    await exchange.send()
    assert exchange.status == 200


async def test_exception_without_an_answer_reaches_the_server() -> None:
    exchange = Exchange(Inside(raises=RuntimeError("nobody answered"), answers_first=False))
    with pytest.raises(RuntimeError):
        await exchange.send()


async def test_open_paths_need_no_token() -> None:
    for path in ("/healthz", "/readyz", "/openapi.json"):
        exchange = Exchange()
        await exchange.send(method="GET", path=path, headers=[])
        assert exchange.status == 200
    for path in ("/docs", "/metrics", "/healthz/", "//healthz", "/api/../healthz", "/HEALTHZ"):
        exchange = Exchange()
        await exchange.send(method="GET", path=path, headers=[])
        assert exchange.status == 401


async def test_two_kinds_of_body_length_are_refused_and_close() -> None:
    """A proxy that believes one and a server that believes the other see different requests."""
    exchange = Exchange()
    both = [*MINE, (b"content-length", b"2"), (b"transfer-encoding", b"chunked")]
    answer = await exchange.send(b"{}", headers=both)
    assert (exchange.status, answer["code"]) == (400, "bad_request")
    assert (b"connection", b"close") in exchange.sent[0]["headers"]
    assert exchange.inside.scopes == []


async def test_body_that_does_not_arrive_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anchorwatch_gateway.guard.BODY_S_MAX", 0.02)
    monkeypatch.setattr("anchorwatch_gateway.guard.DRAIN_S_MAX", 0.02)
    exchange = Exchange()
    answer = await exchange.send(b'{"a"', ends=False)
    assert (exchange.status, answer["code"]) == (408, "request_too_slow")
    assert exchange.inside.scopes == []
