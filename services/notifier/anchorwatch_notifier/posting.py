"""POSTs to one URL. No proxy, no redirect, no cookie: a webhook goes to the address in the settings, or nowhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import httpx2

IDLE_MAX = 32
"""Connections that are kept while they are not used."""
ANSWER_BYTES_MAX = 64 * 1024
ANSWER_S_MAX = 1.0

Trace = Callable[[str, object], Awaitable[None]]
_STALE = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
"""How a request fails on a kept connection that the receiver had closed."""
# The standard library raises the last two for a port that does not exist.
_UNREACHABLE = (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, OverflowError, ExceptionGroup)


class NotReached(Exception):
    """There is no answer: the address is unusable, nothing listens there, or the connection was lost."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the receiver answered. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]


class Poster:
    """Posts to ``url`` (``http`` or ``https``; a user name and password in it are sent as basic authentication)."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: httpx2.AsyncClient | None = None

    async def post(self, headers: Mapping[str, str], body: bytes) -> Reply:
        """Post once; or twice, where a kept connection turns out to be dead, so let the receiver recognise repeats by an id.

        Raises:
            NotReached.
        """
        fresh = False

        async def trace(event: str, _: object) -> None:
            nonlocal fresh
            fresh = fresh or event == "connection.connect_tcp.started"

        while True:
            try:
                self._client = self._client or _client()
                return await self._once(self._client, headers, body, trace)
            except _UNREACHABLE as error:
                if fresh or not isinstance(error, _STALE):
                    raise NotReached(type(error).__name__) from None

    async def _once(
        self, client: httpx2.AsyncClient, headers: Mapping[str, str], body: bytes, trace: Trace
    ) -> Reply:
        extensions = {"trace": trace}
        async with client.stream(
            "POST", self._url, headers=headers, content=body, extensions=extensions
        ) as response:
            reply = Reply(response.status_code, dict(response.headers))
            # Only status and headers matter. The rest is read so that the connection can be kept, if it is short.
            with contextlib.suppress(TimeoutError, httpx2.HTTPError):
                async with asyncio.timeout(ANSWER_S_MAX):
                    size = 0
                    async for chunk in response.aiter_raw():
                        size += len(chunk)
                        if size > ANSWER_BYTES_MAX:
                            break
            return reply

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


def _client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        # No environment: that would name proxies. The certificates are those that it names.
        trust_env=False,
        verify=httpx2.create_ssl_context(trust_env=True),
        follow_redirects=False,
        timeout=None,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=IDLE_MAX),
        headers={"user-agent": "anchorwatch"},
    )
