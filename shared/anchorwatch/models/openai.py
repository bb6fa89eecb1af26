"""A model behind any endpoint that speaks OpenAI's chat.completions.

Importing this module imports the SDK (0.5 s): `registry` does so only where an LLM is configured.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

import structlog

from anchorwatch.core.times import backoff_s
from anchorwatch.models.endpoint import Endpoint
from anchorwatch.models.exchange import Exchange
from anchorwatch.models.faults import SIZE_HINT
from anchorwatch.models.port import ModelReply, ModelRequest, ModelUnavailable, TooLargeToSend
from anchorwatch.models.reply import EmptyAnswer, Form
from anchorwatch.models.request import JsonObject
from anchorwatch.models.shaping import answers_in_json, body_of, nudged, shaped
from anchorwatch.models.tokens import Counter

CONCURRENCY = 8

log = structlog.stdlib.get_logger("anchorwatch.models")


@dataclass(frozen=True, slots=True)
class Retries:
    """Retry limits and delays. An empty answer is requested again ``empty_max`` times, with a nudge."""

    attempts_max: int = 4
    empty_max: int = 2
    wait_initial_s: float = 0.5
    wait_s_max: float = 20.0

    def wait_s(self, attempt: int, fault: ModelUnavailable) -> float:
        """Seconds before the next attempt: our backoff, or longer if the endpoint requests it. ``attempt`` starts at 1."""
        spread = random.random()  # noqa: S311 - spreads retries, hides nothing
        return max(
            backoff_s(attempt, self.wait_initial_s, self.wait_s_max, spread), fault.retry_after_s or 0.0
        )


class OpenAIModel:
    """One model at one endpoint. At most ``concurrency`` calls at a time; others wait within their own deadline."""

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
        self._retries = retries or Retries()
        self._places = asyncio.Semaphore(concurrency)
        self._exchange = Exchange(endpoint, concurrency)
        self.counter = counter

    @property
    def name(self) -> str:
        """The model's name at the endpoint."""
        return self._endpoint.model

    def count(self, request: ModelRequest) -> int:
        """Tokens of the request exactly as it is sent; an upper bound, or an estimate (`counter.estimate`)."""
        return self.counter.sent(shaped(self._endpoint.profile, request))

    async def complete(self, request: ModelRequest, deadline_s: float) -> ModelReply:
        """Complete. ``deadline_s``: seconds for everything, including queueing, retries and their delays.

        Raises:
            ModelUnavailable: no usable answer in time; ``retry_after_s`` if the endpoint sent one.
            ModelRefused: no retry will help.
            ContextOverflow: the endpoint refused the request as too large; TooLargeToSend: its profile does.
        """
        self._check_size(request)
        longest_s = min(deadline_s, self._endpoint.patience.total_s)
        until = asyncio.get_running_loop().time() + longest_s
        try:
            async with asyncio.timeout_at(until), self._places:
                return await self._ask(request, until)
        except TimeoutError:
            raise ModelUnavailable(
                f"{self._endpoint.place} did not answer within {longest_s:g} s",
                hint="ANCHORWATCH_MODEL_TIMEOUT_S sets this timeout",
            ) from None

    async def close(self) -> None:
        """Close the connections. Calls that still run end with ModelUnavailable."""
        await self._exchange.close()

    def _check_size(self, request: ModelRequest) -> None:
        """Refuse to send what the endpoint would truncate silently (INV-609)."""
        taken = self._endpoint.profile.context_tokens
        if not taken:
            return
        counted = self.count(request)
        if counted + self._endpoint.completion_tokens_max > taken:
            raise TooLargeToSend(
                f"the request has {counted} tokens, its answer may have {self._endpoint.completion_tokens_max}, and "
                f"{self._endpoint.place} allows {taken} together, by its profile",
                hint=SIZE_HINT,
                limit=max(0, taken - self._endpoint.completion_tokens_max),
            )

    async def _ask(self, request: ModelRequest, until: float) -> ModelReply:
        """Retry until there is an answer, within the limits of `Retries`."""
        profile = self._endpoint.profile
        body = self._body(request)
        form = Form(
            json=answers_in_json(profile, request),
            one_call=not profile.parallel,
            reasoning_field=profile.reasoning_field,
            overflow_words=profile.overflow_words,
        )
        sent = body
        empty = 0
        attempt = 1
        while True:
            try:
                return await self._exchange.ask(sent, form)
            except EmptyAnswer as fault:
                empty += 1
                if empty > self._retries.empty_max:
                    raise
                last: ModelUnavailable = fault
                sent = {**body, "messages": nudged(profile, body["messages"])}
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

    def _body(self, request: ModelRequest) -> JsonObject:
        limit = {self._endpoint.limit_field: self._endpoint.completion_tokens_max}
        return {"model": self._endpoint.model, **body_of(self._endpoint.profile, request), **limit}
