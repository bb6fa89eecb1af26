"""Any endpoint that speaks OpenAI's chat.completions, over the `openai` SDK.

Importing this module imports the SDK (0.5 s): `registry` does so only where an LLM is configured. The SDK sends and
closes; retries, deadlines and validation are ours, so that each is bounded and seen.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import openai
import structlog

from anchorwatch.models.faults import Fault, fault_of, parse_body, retry_after_s
from anchorwatch.models.port import ModelReply, ModelRequest, ModelUnavailable
from anchorwatch.models.reply import EmptyAnswer, read_reply
from anchorwatch.models.request import JsonObject, nudged, prepare
from anchorwatch.models.text import brief, redact
from anchorwatch.models.tokens import Counter

CONNECT_S_MAX = 10.0
BODY_BYTES_MAX = 8 * 1024 * 1024
CONCURRENCY = 8
NO_KEY = "none"
"""The SDK wants a key; local servers want none."""

log = structlog.stdlib.get_logger("anchorwatch.models")


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and how patiently. An answer without content is asked for again ``empty_max`` times, with a nudge."""

    attempts_max: int = 4
    empty_max: int = 2
    wait_initial_s: float = 0.5
    wait_s_max: float = 20.0

    def wait_s(self, attempt: int, fault: ModelUnavailable) -> float:
        """Seconds before the next attempt: what the endpoint asked for, else doubling, with jitter. ``attempt`` from 1."""
        if fault.retry_after_s is not None:
            return fault.retry_after_s
        longest_s: float = min(self.wait_s_max, self.wait_initial_s * 2.0 ** (attempt - 1))
        return longest_s * random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries, hides nothing


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is, and what is asked of it. ``limit_field``: how the endpoint calls the longest answer."""

    url: str
    model: str
    key: str = ""
    completion_tokens_max: int = 4096
    timeout_s: float = 120.0
    limit_field: str = "max_tokens"

    def redact(self, text: str) -> str:
        """The text without the key."""
        return redact(text, self.key)

    def __repr__(self) -> str:
        return f"Endpoint({self.model} at {self.url})"


class OpenAIModel:
    """One model behind one endpoint. At most ``concurrency`` calls at a time; others wait, within their own deadline."""

    is_llm = True

    def __init__(
        self,
        endpoint: Endpoint,
        counter: Counter,
        *,
        concurrency: int = CONCURRENCY,
        retries: Retries | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._place = f"the model endpoint {endpoint.url}"
        self._retries = retries or Retries()
        self._places = asyncio.Semaphore(concurrency)
        self.counter = counter
        timeout = httpx2.Timeout(endpoint.timeout_s, connect=CONNECT_S_MAX)
        self._client = openai.AsyncOpenAI(
            api_key=endpoint.key or NO_KEY,
            base_url=endpoint.url,
            max_retries=0,
            timeout=timeout,
            http_client=httpx2.AsyncClient(
                # A redirected POST becomes a GET, and a key should not travel on.
                follow_redirects=False,
                limits=httpx2.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
                timeout=timeout,
            ),
        )
        # What the SDK finds in the environment belongs to another account than the key that was configured here.
        self._client.organization = None
        self._client.project = None

    @property
    def name(self) -> str:
        """The model as it is asked for."""
        return self._endpoint.model

    def count(self, request: ModelRequest) -> int:
        """Tokens of the request exactly as it is sent; an upper bound, or an estimate (`counter.estimate`)."""
        return self.counter.sent(request)

    async def complete(self, request: ModelRequest, deadline_s: float) -> ModelReply:
        """Ask. ``deadline_s``: seconds for all of it: waiting for a place, retries and their waits.

        Raises:
            ModelUnavailable: no usable answer in time; ``retry_after_s`` where the endpoint named one.
            ModelRefused: no retry will help.
            ContextOverflow: the request is too large for the endpoint.
        """
        longest_s = min(deadline_s, self._endpoint.timeout_s)
        until = asyncio.get_running_loop().time() + longest_s
        try:
            async with asyncio.timeout_at(until), self._places:
                return await self._ask(*prepare(request.messages, request.tools), until)
        except TimeoutError:
            raise ModelUnavailable(
                f"{self._place} gave no answer within {longest_s:g} s",
                hint="ANCHORWATCH_MODEL_TIMEOUT_S sets the longest wait",
            ) from None

    async def close(self) -> None:
        """Close the connections. Calls that still run end with ModelUnavailable."""
        await self._client.close()

    async def _ask(self, messages: list[JsonObject], tools: list[JsonObject], until: float) -> ModelReply:
        """Ask until there is an answer, at most as often as `Retries` says."""
        sent = messages
        empty = 0
        attempt = 1
        while True:
            try:
                return await self._once(sent, tools)
            except EmptyAnswer as fault:
                empty += 1
                if empty > self._retries.empty_max:
                    raise
                last: ModelUnavailable = fault
                sent = nudged(messages)
            except ModelUnavailable as fault:
                last = fault
            wait_s = self._retries.wait_s(attempt, last)
            if attempt >= self._retries.attempts_max or asyncio.get_running_loop().time() + wait_s >= until:
                raise last
            log.warning(
                "model_retry", model=self.name, attempt=attempt, wait_s=round(wait_s, 3), because=last.message
            )
            await asyncio.sleep(wait_s)
            attempt += 1

    async def _once(self, messages: list[JsonObject], tools: list[JsonObject]) -> ModelReply:
        """One request, one answer."""
        asked: dict[str, Any] = {
            "model": self._endpoint.model,
            "messages": messages,
            self._endpoint.limit_field: self._endpoint.completion_tokens_max,
        }
        if tools:
            asked["tools"] = tools
        try:
            # Streamed only so that the body can be bounded, and is left to our own validation.
            async with self._client.chat.completions.with_streaming_response.create(**asked) as response:
                content = await self._body(response)
        # Nothing is chained: what these errors carry holds the request, and the request holds the key.
        except openai.APIStatusError as error:
            raise self._refused(error) from None
        # ValueError: the SDK reads the text of an error in the charset that its header claims, and fails when it is not.
        except (openai.OpenAIError, httpx2.HTTPError, OSError, ValueError) as error:
            raise ModelUnavailable(self._why(error)) from None
        return read_reply(
            content,
            completion_tokens_max=self._endpoint.completion_tokens_max,
            redact=self._endpoint.redact,
            secret=self._endpoint.key,
            place=self._place,
        )

    async def _body(self, response: openai.AsyncAPIResponse[Any]) -> bytes:
        parts: list[bytes] = []
        left = BODY_BYTES_MAX
        async for part in response.iter_bytes():
            left -= len(part)
            if left < 0:
                raise ModelUnavailable(
                    f"{self._place} answered with more than {BODY_BYTES_MAX // 1024**2} MiB"
                )
            parts.append(part)
        return b"".join(parts)

    def _refused(self, error: openai.APIStatusError) -> Fault:
        headers: Mapping[str, str] = error.response.headers
        return fault_of(
            error.status_code,
            parse_body(error.response.content),
            redact=self._endpoint.redact,
            retry_after_s=retry_after_s(headers),
            place=self._place,
        )

    def _why(self, error: Exception) -> str:
        cause = error.__cause__ or error
        text = self._endpoint.redact(brief(str(cause)))
        return f"{self._place} did not answer: {type(cause).__name__}" + (f": {text}" if text else "")
