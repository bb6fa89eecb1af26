"""A model behind any endpoint that speaks OpenAI's chat.completions.

Importing this module imports the SDK (0.5 s): `registry` does so only where an LLM is configured.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace

import structlog

from anchorwatch.core.times import backoff_s
from anchorwatch.models.endpoint import Endpoint
from anchorwatch.models.exchange import Exchange
from anchorwatch.models.faults import SIZE_HINT
from anchorwatch.models.port import (
    ContextOverflow,
    ModelRefused,
    ModelReply,
    ModelRequest,
    ModelUnavailable,
    OnRetry,
    Retry,
    TooLargeToSend,
    ignore,
)
from anchorwatch.models.reply import EmptyAnswer, Form
from anchorwatch.models.request import JsonObject
from anchorwatch.models.shaping import answers_in_json, body_of, nudged, shaped
from anchorwatch.models.tokens import Counter
from anchorwatch.models.usage import Usage

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

    async def complete(
        self, request: ModelRequest, deadline_s: float, on_retry: OnRetry = ignore
    ) -> ModelReply:
        """Complete. ``deadline_s``: seconds for everything, including queueing, retries and their delays.

        Raises:
            ModelUnavailable: no usable answer in time; ``retry_after_s`` if the endpoint sent one.
            ModelRefused: no retry will help.
            ContextOverflow: the endpoint refused the request as too large; TooLargeToSend: its profile does.
        """
        self._check_size(request)
        longest_s = min(deadline_s, self._endpoint.patience.total_s)
        until = asyncio.get_running_loop().time() + longest_s
        late = ModelUnavailable(
            f"{self._endpoint.place} did not answer within {longest_s:g} s",
            hint="ANCHORWATCH_MODEL_TIMEOUT_S sets this timeout",
        )
        try:
            async with asyncio.timeout_at(until):
                await self._places.acquire()
        except TimeoutError:
            raise late from None
        try:
            return await self._ask(request, until, late, on_retry)
        finally:
            self._places.release()

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

    async def _ask(
        self, request: ModelRequest, until: float, late: ModelUnavailable, on_retry: OnRetry
    ) -> ModelReply:
        """Retry until there is an answer, within the limits of `Retries`. ``late``: the error when the time is over."""
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
                return await self._attempt(request, sent, form, until)
            except TimeoutError:
                # The endpoint has the request, and may be answering it.
                late.usage = Usage()
                raise late from None
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
            attempt += 1
            await on_retry(Retry(attempt, last, wait_s))
            await asyncio.sleep(wait_s)

    async def _attempt(self, request: ModelRequest, sent: JsonObject, form: Form, until: float) -> ModelReply:
        """One attempt. Errors as `complete`; TimeoutError: no answer until ``until``."""
        try:
            async with asyncio.timeout_at(until):
                reply = await self._exchange.ask(sent, form)
        except (ModelUnavailable, ModelRefused, ContextOverflow) as fault:
            fault.usage = fault.usage and self._credible(fault.usage, request)
            raise
        return replace(reply, usage=self._credible(reply.usage, request))

    def _credible(self, usage: Usage, request: ModelRequest) -> Usage:
        """The usage without reports that cannot be true (INV-622)."""
        counted = self.count(request)
        credible = usage.credible(counted, self._endpoint.completion_tokens_max)
        if credible != usage:
            log.warning(
                "model.usage_not_credible", model=self.name, counted=counted, written=usage.written,
                prompt=usage.prompt_tokens, completion=usage.completion_tokens,
            )  # fmt: skip
        return credible

    def _body(self, request: ModelRequest) -> JsonObject:
        limit = {self._endpoint.limit_field: self._endpoint.completion_tokens_max}
        return {"model": self._endpoint.model, **body_of(self._endpoint.profile, request), **limit}
