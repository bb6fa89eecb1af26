"""A model whose counts follow what its endpoint reports as used."""

from __future__ import annotations

import math
from collections.abc import Callable

from anchorwatch.models.correction import Correction
from anchorwatch.models.port import ContextOverflow, Measures, Model, ModelReply, ModelRequest, TooLargeToSend

Learned = Callable[[str, Correction], None]
"""Told (model's name, correction) whenever a report changed it."""
UNPROVED_RATIO = 1.3
"""What counts are multiplied by until the endpoint's first report: the widest gap between a count and a report that was met."""
OVERFLOW_RATIO = 1.25
"""By how much a count is taken to fall short when an endpoint refuses the request as too large, and does not say its size."""
ROOM_SHARE = 0.75
"""Of what an endpoint takes, or of what it refused: the most that a request then has. The rest is the answer's."""


class CorrectedModel:
    """Wraps a model. ``known``: what was learned before, by other processes too. ``reserve``: the ratio until anything is.

    A model with a counter of its own needs no reserve while that answers: it is asked before anything is sent.
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
        """What was learned so far."""
        return self._correction

    @property
    def largest(self) -> int | None:
        """The most tokens of a request that is worth sending, as far as refusals have shown; None: none has."""
        return self._largest

    def count(self, request: ModelRequest) -> int:
        """Tokens of the request; from its endpoint's first report on never below what that would be."""
        counted = self._correction.applied(self._model.count(request))
        proved = self._correction.reports or self._is_measured
        return counted if proved else math.ceil(counted * self._reserve)

    async def measure(self, request: ModelRequest) -> int | None:
        """Tokens by the endpoint's own counter, which counts as a report; None: it has none, or did not answer."""
        if not isinstance(self._model, Measures):
            return None
        tokens = await self._model.measure(request)
        self._is_measured = tokens is not None
        if tokens is not None:
            self._learn(self._model.count(request), tokens)
        return tokens

    async def complete(self, request: ModelRequest, deadline_s: float) -> ModelReply:
        """Ask, and learn from what the endpoint reports. Errors as `Model.complete`."""
        try:
            reply = await self._model.complete(request, deadline_s)
        except TooLargeToSend as error:
            # The endpoint has said nothing: there is nothing to learn of its count.
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
        """Where it was not the count that fell short, the endpoint takes less than it was thought to."""
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
