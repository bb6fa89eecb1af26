"""Bounds on the gateway's HTTP connections: no client can hold all of them with requests that never end.

uvicorn limits the idle time between requests. It limits neither the time that a request's headers take nor the number of
connections, so that a thousand half-sent requests would use up the process's open files.
"""

from __future__ import annotations

import asyncio
import resource

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_S = 10.0
"""How long the headers of a request may take, from the connection or from their first byte."""
CONNECTIONS_MAX = min(512, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)

_TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)


class BoundedConnection(H11Protocol):
    """One connection. While there are too many, a new one replaces the oldest that has no request in progress."""

    _headers_timer: asyncio.TimerHandle | None = None
    _since_s: float = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as its base class
        super().connection_made(transport)
        self._since_s = self.loop.time()
        self._wait_for_headers()
        if len(self.connections) > CONNECTIONS_MAX:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._headers_arrived()
        elif self._headers_timer is None and self.conn.trailing_data[0]:
            self._wait_for_headers()

    def _wait_for_headers(self) -> None:
        self._headers_timer = self.loop.call_later(HEADERS_S, self._refuse, _TIMED_OUT)

    def _headers_arrived(self) -> None:
        if self._headers_timer is not None:
            self._headers_timer.cancel()
            self._headers_timer = None

    def _make_room(self) -> None:
        connections = [each for each in self.connections if isinstance(each, BoundedConnection)]
        unused = [each for each in connections if each is not self and each.is_unused]
        oldest = min(unused, key=lambda each: each._since_s, default=self)  # noqa: SLF001 - its own class
        oldest._refuse(_FULL if oldest is self else _TIMED_OUT)  # noqa: SLF001 - its own class

    @property
    def is_unused(self) -> bool:
        """Whether no request is being answered on it."""
        # None before the first request, which its type leaves out.
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]

    def _refuse(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            if self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE:
                self.transport.write(answer)
            self.transport.close()
        # A closing transport that still has bytes to write keeps its place no longer.
        self.connections.discard(self)
