"""The bounds on connections: requests that never end take no place from others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
import pytest
from anchorwatch_gateway import connections
from anchorwatch_gateway.main import bind, serve, url_of
from starlette.types import Receive, Scope, Send

HALF = b"GET / HTTP/1.1\r\nhost: x\r\n"
SOON_S = 30.0


async def hello(scope: Scope, _receive: Receive, send: Send) -> None:
    if scope["path"] == "/endless":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await asyncio.Event().wait()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    listener, stopping = bind("127.0.0.1", 0), asyncio.Event()
    task = asyncio.create_task(serve(hello, listener, stopping, asyncio.Event()))
    try:
        yield url_of(listener)
    finally:
        stopping.set()
        await task


class Peer:
    """A client that sends what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, url: str, stack: AsyncExitStack, data: bytes = b"") -> Peer:
        address = httpx2.URL(url)
        peer = cls(*await asyncio.open_connection(address.host, address.port))
        stack.push_async_callback(peer.leave)
        peer.writer.write(data)
        return peer

    async def rest(self) -> bytes:
        """Everything until the server closes the connection."""
        return await asyncio.wait_for(self.reader.read(), SOON_S)

    async def leave(self) -> None:
        self.writer.close()


async def test_headers_that_do_not_end_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADERS_S", 0.05)
    async with serving() as url, AsyncExitStack() as stack:
        silent = await Peer.connect(url, stack)
        half = await Peer.connect(url, stack, HALF)
        assert (await silent.rest()).startswith(b"HTTP/1.1 408 ")
        assert (await half.rest()).startswith(b"HTTP/1.1 408 ")


async def test_second_request_that_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first bytes end the limit of the idle time, so it needs one of its own."""
    monkeypatch.setattr(connections, "HEADERS_S", 0.05)
    async with serving() as url, AsyncExitStack() as stack:
        peer = await Peer.connect(url, stack, HALF + b"\r\n")
        assert b"hello" in await peer.reader.readuntil(b"hello")
        peer.writer.write(HALF)
        assert (await peer.rest()).startswith(b"HTTP/1.1 408 ")


async def test_half_open_requests_keep_no_client_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 8)
    async with serving() as url, AsyncExitStack() as stack:
        half = [await Peer.connect(url, stack, HALF) for _ in range(40)]
        async with httpx2.AsyncClient(base_url=url, timeout=SOON_S) as client:
            assert (await client.get("/")).text == "hello"
        cut = [await peer.rest() for peer in half[:30]]
        assert all(each.startswith(b"HTTP/1.1 408 ") for each in cut)


async def test_answers_in_progress_keep_their_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 4)
    async with serving() as url, AsyncExitStack() as stack:
        busy = [await Peer.connect(url, stack, b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n") for _ in range(4)]
        for peer in busy:
            await asyncio.wait_for(peer.reader.readuntil(b"first"), SOON_S)
        refused = await Peer.connect(url, stack, HALF)
        assert (await refused.rest()).startswith(b"HTTP/1.1 503 ")
        assert not any(peer.reader.at_eof() for peer in busy)
