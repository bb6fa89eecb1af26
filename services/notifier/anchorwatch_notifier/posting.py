"""POSTs to one URL over HTTP/1.1, at little cost: h11 knows the protocol, asyncio carries it, and connections are kept.

No proxy, no redirect, no cookie: a webhook goes to the address that people wrote down, or not at all. TLS is checked as httpx
does. What the receiver says beside status and headers is of no interest, and may be without end: it is read only so that its
connection serves the next request too.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import h11
import httpx2

IDLE_MAX = 32
"""Connections that are kept while nobody uses them."""
READ_BYTES = 65_536
HEAD_BYTES_MAX = 64 * 1024
ANSWER_BYTES_MAX = 64 * 1024
ANSWER_S_MAX = 1.0


class NotReached(Exception):
    """There is no answer: the address cannot be used, nobody listens, or the connection went away. ``cause``: in a word."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the receiver answered. Names of headers are in small letters."""

    status: int
    headers: Mapping[str, str]


class Poster:
    """Posts to ``url`` (``http`` or ``https``; name and password in it are sent as basic authentication)."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._target: _Target | None = None
        self._idle: list[_Connection] = []
        self._closed = False

    async def post(self, headers: Mapping[str, str], body: bytes) -> Reply:
        """Post once, or twice where a kept connection turns out to be dead: so let the receiver know repeats by an id.

        Raises:
            NotReached.
        """
        try:
            return await self._post(headers, body)
        except (OSError, EOFError, h11.ProtocolError, httpx2.InvalidURL, ValueError, OverflowError) as error:
            raise NotReached(error) from None

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    async def _post(self, headers: Mapping[str, str], body: bytes) -> Reply:
        if self._target is None:
            self._target = _target(self._url)
        request = self._target.request(headers, body)
        while (kept := self._kept()) is not None:
            with contextlib.suppress(_Stale):
                return await self._ask(kept, request, body)
        return await self._ask(await _connect(self._target), request, body)

    def _kept(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            connection.close()
        return None

    async def _ask(self, connection: _Connection, request: h11.Request, body: bytes) -> Reply:
        reusable = False
        try:
            reply = await connection.ask(request, body)
            reusable = await connection.read_out()
            return reply
        finally:
            if reusable and not self._closed and len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
            else:
                connection.close()


class _Stale(Exception):
    """The connection was kept, and the receiver had closed it."""


@dataclass(frozen=True, slots=True)
class _Target:
    """Where to connect, and what every request to there begins with."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    path: bytes
    headers: Sequence[tuple[bytes, bytes]]

    def request(self, headers: Mapping[str, str], body: bytes) -> h11.Request:
        own = [(name.encode(), value.encode()) for name, value in headers.items()]
        length = (b"content-length", str(len(body)).encode())
        return h11.Request(method=b"POST", target=self.path, headers=[*self.headers, *own, length])


def _target(url: str) -> _Target:
    parsed = httpx2.URL(url)
    secure = parsed.scheme == "https"
    headers = [(b"host", parsed.netloc), (b"accept", b"*/*"), (b"user-agent", b"anchorwatch")]
    if parsed.userinfo:
        secret = base64.b64encode(f"{parsed.username}:{parsed.password}".encode())
        headers.append((b"authorization", b"Basic " + secret))
    return _Target(
        host=parsed.raw_host.decode("ascii"),
        port=parsed.port or (443 if secure else 80),
        tls=httpx2.create_ssl_context(trust_env=True) if secure else None,
        path=parsed.raw_path,
        headers=headers,
    )


async def _connect(target: _Target) -> _Connection:
    name = target.host if target.tls else None
    return _Connection(
        *await asyncio.open_connection(target.host, target.port, ssl=target.tls, server_hostname=name)
    )


class _Connection:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._kept = False

    @property
    def usable(self) -> bool:
        """Whether the other side has not hung up, as far as is known here."""
        return not (self._reader.at_eof() or self._writer.is_closing())

    def close(self) -> None:
        self._writer.close()

    async def ask(self, request: h11.Request, body: bytes) -> Reply:
        """Send, and wait for status and headers.

        Raises:
            _Stale: nothing came, and the connection had been kept.
        """
        events = (request, h11.Data(data=body), h11.EndOfMessage())
        try:
            self._writer.write(b"".join(self._http.send(event) or b"" for event in events))
            event = await self._next()
        except (OSError, EOFError):
            if self._kept:
                raise _Stale from None
            raise
        while isinstance(event, h11.InformationalResponse):
            event = await self._next()
        if not isinstance(event, h11.Response):
            raise EOFError  # noqa: TRY004 - of the protocol, not of the code
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in event.headers}
        return Reply(event.status_code, headers)

    async def read_out(self) -> bool:
        """Read the answer to its end; whether the connection can be used again. A long or slow one is given up."""
        size = 0
        with contextlib.suppress(TimeoutError, OSError, EOFError, h11.ProtocolError):
            async with asyncio.timeout(ANSWER_S_MAX):
                while size <= ANSWER_BYTES_MAX:
                    event = await self._next()
                    if isinstance(event, h11.EndOfMessage):
                        return self._again()
                    size += len(event.data) if isinstance(event, h11.Data) else 0
        return False

    def _again(self) -> bool:
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        # What comes before it was asked for belongs to no request.
        self._kept = True
        return self._http.trailing_data == (b"", False)

    async def _next(self) -> Any:  # noqa: ANN401 - one of h11's events
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            data = await self._reader.read(READ_BYTES)
            if not data and self._http.their_state is h11.SEND_RESPONSE:
                raise EOFError
            self._http.receive_data(data)
