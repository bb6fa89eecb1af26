"""Posting to receivers that keep, drop, stretch and redirect."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from anchorwatch_notifier.posting import NotReached, Poster

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Serve = Callable[["Peer", int], Awaitable[None]]
"""Answers the n-th request of all (from 1)."""


class Peer:
    """One connection at the receiver's side."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


class House:
    """A receiver: what it was asked, over how many connections."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.heads: list[bytes] = []
        self.connections = 0
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while not writer.is_closing():
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                await reader.readexactly(4)
                await self._serve(Peer(reader, writer), len(self.heads))
        except (EOFError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def house(serve: Serve) -> AsyncIterator[tuple[House, Poster]]:
    open_ = House(serve)
    server = await asyncio.start_server(open_.handle, "127.0.0.1", 0)
    open_.url = f"http://who:pass%20word@127.0.0.1:{server.sockets[0].getsockname()[1]}/a b?c"
    poster = Poster(open_.url)
    try:
        yield open_, poster
    finally:
        await poster.close()
        server.close()
        await server.wait_closed()


async def post(poster: Poster) -> int:
    return (await poster.post({"webhook-id": "1"}, b"body")).status


async def test_connection_serves_requests_in_turn_and_names_the_sender() -> None:
    async def serve(peer: Peer, n: int) -> None:
        await peer.say(b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK if n == 1 else OK)

    async with house(serve) as (at, poster):
        assert [await post(poster) for _ in range(3)] == [200, 200, 200]
        assert at.connections == 1
        lines = at.heads[0].split(b"\r\n")
        assert lines[0] == b"POST /a%20b?c HTTP/1.1"
        assert b"authorization: Basic " + base64.b64encode(b"who:pass word") in [
            line[:15].lower() + line[15:] for line in lines
        ]


async def test_requests_at_once_have_a_connection_each() -> None:
    together = asyncio.Barrier(3)

    async def serve(peer: Peer, _n: int) -> None:
        await together.wait()
        await peer.say(OK)

    async with house(serve) as (at, poster):
        assert await asyncio.gather(*(post(poster) for _ in range(3))) == [200] * 3
        assert at.connections == 3


async def test_kept_connection_that_hangs_up_is_replaced() -> None:
    async def serve(peer: Peer, n: int) -> None:
        if n == 2:
            peer.writer.transport.abort()
        else:
            await peer.say(OK)

    async with house(serve) as (at, poster):
        assert [await post(poster), await post(poster)] == [200, 200]
        assert (at.connections, len(at.heads)) == (2, 3)


async def test_fresh_connection_that_hangs_up_is_not_retried() -> None:
    async def serve(peer: Peer, _n: int) -> None:
        peer.writer.close()

    async with house(serve) as (at, poster):
        with pytest.raises(NotReached):
            await post(poster)
        assert len(at.heads) == 1


async def test_chunked_answer_is_read_whole_and_endless_one_abandoned() -> None:
    async def serve(peer: Peer, n: int) -> None:
        await peer.say(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        if n == 1:
            await peer.say(b"2\r\nok\r\n0\r\n\r\n")
            return
        while not peer.writer.is_closing():
            await peer.say(b"400\r\n" + b"x" * 1024 + b"\r\n")

    async with house(serve) as (at, poster):
        assert [await post(poster) for _ in range(2)] == [200, 200]
        assert (at.connections, len(at.heads)) == (1, 2)
        assert await post(poster) == 200
        assert at.connections == 2


async def test_redirect_is_an_answer_and_is_not_followed() -> None:
    async def serve(peer: Peer, _n: int) -> None:
        await peer.say(
            b"HTTP/1.1 307 X\r\nlocation: /elsewhere\r\nretry-after: 5\r\ncontent-length: 0\r\n\r\n"
        )

    async with house(serve) as (at, poster):
        reply = await poster.post({}, b"body")
        assert (reply.status, reply.headers["retry-after"], len(at.heads)) == (307, "5", 1)


@pytest.mark.parametrize(
    "answer", [b"hello\r\n\r\n", b"HTTP/1.1 999999 X\r\n\r\n", b"x" * 100_000, b"HTTP/1.1 200 OK\r\n"]
)
async def test_answer_that_is_not_http_is_refused(answer: bytes) -> None:
    async def serve(peer: Peer, _n: int) -> None:
        await peer.say(answer)
        peer.writer.close()

    async with house(serve) as (_, poster):
        with pytest.raises(NotReached):
            await post(poster)


async def test_receiver_with_an_untrusted_certificate_is_refused() -> None:
    spoken: list[bytes] = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        spoken.append(await reader.read(1))
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    poster = Poster(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    with pytest.raises(NotReached):
        await post(poster)
    await poster.close()
    server.close()
    await server.wait_closed()
    # The first byte of a TLS handshake, and not of a request.
    assert spoken == [b"\x16"]


@pytest.mark.parametrize("url", ["http:///x", "http://127.0.0.1:99999/", "http://☃/"])
async def test_unusable_address_is_never_contacted(url: str) -> None:
    with pytest.raises(NotReached):
        await post(Poster(url))
