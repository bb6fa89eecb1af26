"""A model whose token counts are corrected by the usage that its endpoint reports."""

from __future__ import annotations

import math
from collections.abc import Callable

from anchorwatch.models.correction import Correction
from anchorwatch.models.port import (
    ContextOverflow,
    Measures,
    Model,
    ModelReply,
    ModelRequest,
    OnRetry,
    TooLargeToSend,
    ignore,
)

Learned = Callable[[str, Correction], None]
"""Called with (model name, correction) whenever a report changed it."""
UNPROVED_RATIO = 1.3
"""Factor on counts until the endpoint's first report: the widest gap between a count and a report ever seen."""
OVERFLOW_RATIO = 1.25
"""Assumed shortfall of a count when an endpoint refuses the request as too large without stating its size."""
ROOM_SHARE = 0.75
"""Largest later request, as a share of the endpoint's limit or of the refused size. The rest is left for the answer."""


class CorrectedModel:
    """Wraps a model. ``known``: the correction learned so far, also by other processes. ``reserve``: the ratio before any report.

    A model with its own counter needs no reserve while the counter answers: it is called before every request.
    """

    def __init__(
        self, model: Model, known: Correction, learned: Learned, *, reserve: float = UNPROVED_RATIO
    ) -> None:
        self._model = model
        self._correction = known
        self._learned = learned
        self._reserve = reserve
        self._largest: int | None = None
        self._is_measured = isinstance(model, Measures)

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def is_llm(self) -> bool:
        return self._model.is_llm

    @property
    def correction(self) -> Correction:
        """The correction learned so far."""
        return self._correction

    @property
    def largest(self) -> int | None:
        """The largest request worth sending, in tokens, as shown by refusals; None: no refusal yet."""
        return self._largest

    def count(self, request: ModelRequest) -> int:
        """Tokens of the request; after the endpoint's first report never below what it would report."""
        counted = self._correction.applied(self._model.count(request))
        proved = self._correction.reports or self._is_measured
        return counted if proved else math.ceil(counted * self._reserve)

    async def measure(self, request: ModelRequest) -> int | None:
        """Tokens by the endpoint's own counter, which counts as a report; None: no counter or no answer."""
        if not isinstance(self._model, Measures):
            return None
        tokens = await self._model.measure(request)
        self._is_measured = tokens is not None
        if tokens is not None:
            self._learn(self._model.count(request), tokens)
        return tokens

    async def complete(
        self, request: ModelRequest, deadline_s: float, on_retry: OnRetry = ignore
    ) -> ModelReply:
        """Complete, and learn from the reported usage. Errors as `Model.complete`."""
        try:
            reply = await self._model.complete(request, deadline_s, on_retry)
        except TooLargeToSend as error:
            # Nothing was sent, so there is no count to learn from.
            if error.limit is not None:
                self._largest = min(error.limit, self._largest or error.limit)
            raise
        except ContextOverflow as error:
            self._refused(self.count(request), error)
            grown = math.ceil(self.count(request) * OVERFLOW_RATIO)
            self._learn(self._model.count(request), error.tokens or grown)
            raise
        if reply.usage.prompt_tokens is not None:
            self._learn(self._model.count(request), reply.usage.prompt_tokens)
        return reply

    async def close(self) -> None:
        await self._model.close()

    def _refused(self, counted: int, error: ContextOverflow) -> None:
        """If the count was not too low, the endpoint's limit is lower than assumed."""
        if error.tokens is None or error.tokens > counted:
            return
        least = min(error.tokens, error.limit or error.tokens)
        self._largest = min(math.floor(least * ROOM_SHARE), self._largest or least)

    def _learn(self, counted: int, reported: int) -> None:
        after = self._correction.learned(counted, reported)
        grown = (after.ratio, after.excess) != (self._correction.ratio, self._correction.excess)
        first = not self._correction.reports
        self._correction = after
        if grown or first:
            self._learned(self.name, after)
