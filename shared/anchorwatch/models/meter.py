"""Calls an endpoint's own token counter before a request is sent.

Two forms are known: llama.cpp's ``/chat/completions/input_tokens``, which equals the reported usage, and vLLM's
``/tokenize``. A counter that does not answer in time, or without a number, is skipped for a while, and the estimate applies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

import httpx2
import structlog

from anchorwatch.models.faults import parse_body
from anchorwatch.models.port import Model, ModelReply, ModelRequest, OnRetry, ignore
from anchorwatch.models.profile import OPENAI, Profile
from anchorwatch.models.request import JsonObject
from anchorwatch.models.shaping import body_of
from anchorwatch.models.text import brief, redact

CounterForm = Literal["input-tokens", "tokenize"]
MEASURE_S_MAX = 2.0
SILENCE_S = 60.0
"""How long a failed counter is skipped."""
ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""vLLM's answer lists every token in addition to their number."""
_OF_TEMPLATE = frozenset({"model", "messages", "tools", "chat_template_kwargs"})
_TOKENS_MAX = 10**9

log = structlog.stdlib.get_logger("anchorwatch.models")


@dataclass(frozen=True, slots=True)
class Place:
    """Address and form of a counter. ``url``: the endpoint's base URL, as for chat.completions.

    ``profile``: how requests are shaped before sending, and therefore counted.
    """

    form: CounterForm
    url: str
    model: str
    key: str = ""
    profile: Profile = OPENAI

    @property
    def address(self) -> str:
        if self.form == "input-tokens":
            return f"{self.url}/chat/completions/input_tokens"
        parts = urlsplit(self.url)
        # vLLM's is next to /v1, not below it.
        return urlunsplit((parts.scheme, parts.netloc, f"{parts.path.removesuffix('/v1')}/tokenize", "", ""))

    def asked(self, request: ModelRequest) -> JsonObject:
        """The body to count: every part of the request that the chat template renders."""
        body: JsonObject = {"model": self.model, **body_of(self.profile, request)}
        if self.form == "tokenize":
            kept = {name: value for name, value in body.items() if name in _OF_TEMPLATE}
            return {**kept, "add_generation_prompt": True}
        return body

    def read(self, body: object) -> int | None:
        """The number in an answer; None: the answer has none."""
        found = (
            body.get("input_tokens" if self.form == "input-tokens" else "count")
            if isinstance(body, Mapping)
            else None
        )
        fine = isinstance(found, int) and not isinstance(found, bool) and 0 < found < _TOKENS_MAX
        return found if fine else None


class Meter:
    """Client of one counter."""

    def __init__(self, place: Place, *, deadline_s: float = MEASURE_S_MAX) -> None:
        self._place = place
        self._deadline_s = deadline_s
        self._silent_until = 0.0
        headers = {"authorization": f"Bearer {place.key}"} if place.key else {}
        self._client = httpx2.AsyncClient(follow_redirects=False, timeout=deadline_s, headers=headers)

    async def measure(self, request: ModelRequest) -> int | None:
        """Tokens of the request as sent; None: unknown."""
        now = asyncio.get_running_loop().time()
        if now < self._silent_until:
            return None
        try:
            async with asyncio.timeout(self._deadline_s):
                tokens = self._place.read(await self._ask(request))
            reason = "the answer has no number"
        except (TimeoutError, httpx2.HTTPError, OSError, ValueError) as error:
            tokens, reason = None, redact(brief(f"{type(error).__name__}: {error}"), self._place.key)
        if tokens is None:
            self._silent_until = now + SILENCE_S
            log.warning("model.counter_failed", url=self._place.address, reason=reason)
        return tokens

    async def close(self) -> None:
        await self._client.aclose()

    async def _ask(self, request: ModelRequest) -> object:
        body = self._place.asked(request)
        async with self._client.stream("POST", self._place.address, json=body) as response:
            response.raise_for_status()
            content = bytearray()
            async for part in response.aiter_bytes():
                content += part
                if len(content) > ANSWER_BYTES_MAX:
                    raise ValueError("the answer is too large")
        return parse_body(bytes(content))


class MeteredModel:
    """A model with its endpoint's own counter."""

    def __init__(self, model: Model, meter: Meter) -> None:
        self._model = model
        self._meter = meter

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def is_llm(self) -> bool:
        return self._model.is_llm

    def count(self, request: ModelRequest) -> int:
        return self._model.count(request)

    async def measure(self, request: ModelRequest) -> int | None:
        return await self._meter.measure(request)

    async def complete(
        self, request: ModelRequest, deadline_s: float, on_retry: OnRetry = ignore
    ) -> ModelReply:
        """Errors as `Model.complete`."""
        return await self._model.complete(request, deadline_s, on_retry)

    async def close(self) -> None:
        await self._model.close()
        await self._meter.close()
