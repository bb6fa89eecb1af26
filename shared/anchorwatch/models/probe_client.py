"""A bounded HTTP client for the probe that hides nothing of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2

from anchorwatch.core.errors import BadInput, Unavailable
from anchorwatch.models.faults import parse_body
from anchorwatch.models.request import JsonObject
from anchorwatch.models.text import brief, redact

CONNECT_S_MAX = 10.0
BODY_BYTES_MAX = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. ``body``: parsed JSON, or text if it is not JSON."""

    status: int
    content: bytes
    headers: Mapping[str, str]

    @property
    def ok(self) -> bool:
        return self.status == httpx2.codes.OK

    @property
    def body(self) -> Any:  # noqa: ANN401 - JSON
        return parse_body(self.content)


class Client:
    """Client of one endpoint. ``timeout_s``: for each request."""

    def __init__(self, url: str, key: str, timeout_s: float) -> None:
        self.url = checked(url)
        self._key = key
        self._timeout_s = timeout_s
        headers = {"authorization": f"Bearer {key}"} if key else {}
        timeout = httpx2.Timeout(timeout_s, connect=CONNECT_S_MAX)
        self._client = httpx2.AsyncClient(follow_redirects=False, timeout=timeout, headers=headers)

    def redact(self, text: str) -> str:
        """One line without the key."""
        return redact(brief(text), self._key)

    @property
    def root(self) -> str:
        """The server's root, next to ``/v1``."""
        return self.url.removesuffix("/v1")

    async def get(self, address: str) -> Answer:
        """Raises Unavailable: no answer."""
        return await self._ask("GET", address, None)

    async def post(self, address: str, body: JsonObject) -> Answer:
        """Raises Unavailable: no answer."""
        return await self._ask("POST", address, body)

    async def chat(self, body: JsonObject) -> Answer:
        """Raises Unavailable: no answer."""
        return await self.post(f"{self.url}/chat/completions", body)

    async def close(self) -> None:
        await self._client.aclose()

    async def _ask(self, method: str, address: str, body: JsonObject | None) -> Answer:
        content = bytearray()
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream(method, address, json=body) as response,
            ):
                async for part in response.aiter_bytes():
                    content += part
                    if len(content) > BODY_BYTES_MAX:
                        raise Unavailable(f"{address} sends an unbounded answer")
        except TimeoutError:
            raise Unavailable(
                f"{address} did not answer within {self._timeout_s:g} s",
                hint="raise --timeout SECONDS",
            ) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            why = self.redact(f"{type(error).__name__}: {error}")
            raise Unavailable(
                f"{address} does not answer: {why}", hint="check that the server runs at this address"
            ) from None
        return Answer(response.status_code, bytes(content), response.headers)


def checked(url: str) -> str:
    """The base URL, without a slash at its end.

    Raises:
        BadInput: it is not a URL, or it contains a secret.
    """
    plain = url.strip().rstrip("/")
    try:
        parts = urlsplit(plain)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in {"http", "https"} or not host:
        raise BadInput("not a valid http or https URL", hint="for example http://127.0.0.1:8000/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise BadInput(
            "the URL holds a user, a password, a query or a fragment",
            hint="pass the plain base URL, and the key with --key",
        )
    return plain.removesuffix("/chat/completions")
