"""Calls the model for a step; if it does not answer, the next one in the agent's list.

Each model has its own token count and budget. The step's record names the model that answered, and those that did not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.core.facts import Observation
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.edges import Edge, around
from anchorwatch.models.port import ContextOverflow, ModelRefused, ModelReply, ModelUnavailable
from anchorwatch.service.context import Clock

from anchorwatch_planner.fitting import Fitted, Fitter, OverBudget
from anchorwatch_planner.runtimes import AgentRuntime, Bounds

Noted = Callable[[AgentRuntime], None]
"""Called with a runtime whose model has answered or failed."""
NextOne = (ModelUnavailable, ModelRefused, ContextOverflow, OverBudget)
"""Failures after which the next model is called."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, its request and its runtime; ``in_vain``: the models that failed before, each with its error code."""

    fitted: Fitted
    reply: ModelReply
    runtime: AgentRuntime
    in_vain: tuple[tuple[str, str], ...] = ()


def asked_in_vain(answered: Answered) -> dict[str, Any]:
    """The step's record of the list: which model answered and which failed; empty if the first one answered."""
    if not answered.in_vain:
        return {}
    return {"model": answered.runtime.terms.name, "in_vain": [list(each) for each in answered.in_vain]}


def _models_before(in_vain: list[tuple[str, str]]) -> str:
    """The end of the last model's error message: the models that failed before it."""
    return f"; before it, {', '.join(f'{name} ({code})' for name, code in in_vain)}" if in_vain else ""


class Asker:
    """Calls models, for one step at a time."""

    def __init__(
        self, fitter: Fitter, bounds: Bounds, clock: Clock, noted: Noted, log: structlog.stdlib.BoundLogger
    ) -> None:
        self._fitter = fitter
        self._bounds = bounds
        self._clock = clock
        self._noted = noted
        self._log = log

    async def ask(
        self, ref: SessionRef, state: SessionState, runtime: AgentRuntime, observation: Observation
    ) -> Answered:
        """The answer of the first model that gives one.

        Raises:
            ModelUnavailable, ModelRefused, ContextOverflow, OverBudget: of the last model that was called.
            Fenced, Unavailable: a compaction could not be recorded.
        """
        runtimes = runtime.in_turn(self._clock.now_ms())
        in_vain: list[tuple[str, str]] = []
        for number, each in enumerate(runtimes, 1):
            try:
                for again in (True, False):
                    fitted = await self._fitter.fit(ref, state, each, observation)
                    state = fitted.state
                    reply = await self._complete(ref, each, fitted, again=again)
                    if reply is not None:
                        return Answered(fitted, reply, each, tuple(in_vain))
            except NextOne as error:
                self._failed(each, error)
                if number == len(runtimes):
                    error.message += _models_before(in_vain)
                    raise
                in_vain.append((each.terms.name, error.code))
                self._log.warning("model.next", session=str(ref), after=each.terms.name, code=error.code)
        raise AssertionError  # the last one answers or raises

    async def _complete(
        self, ref: SessionRef, runtime: AgentRuntime, fitted: Fitted, *, again: bool
    ) -> ModelReply | None:
        """The model's answer. None: the request is too large, and may be sent ``again``, shortened by the count it reported."""
        try:
            with around(Edge.PLANNER_MODEL_BEFORE):
                reply = await runtime.model.complete(fitted.request, self._bounds.timeout_of(runtime))
        except ContextOverflow as error:
            if not again:
                raise
            self._log.warning("model.request_too_large", session=str(ref), reason=str(error))
            return None
        self._answered(runtime, fitted, reply)
        return reply

    def _answered(self, runtime: AgentRuntime, fitted: Fitted, reply: ModelReply) -> None:
        if not runtime.model.is_llm:
            return
        before, now_ms = runtime.status.health, self._clock.now_ms()
        runtime.status.health = before.answered(now_ms, fitted.tokens, reply.usage.prompt_tokens)
        self._noted(runtime)

    def _failed(self, runtime: AgentRuntime, error: AnchorWatchError) -> None:
        if isinstance(error, OverBudget | ContextOverflow):
            # A failure of this request, not of the model.
            return
        before, now_ms = runtime.status.health, self._clock.now_ms()
        # A rejected key is a lasting failure; rejected content is not.
        for_good = isinstance(error, ModelRefused) and error.lasting
        runtime.status.health = before.failed(error.code, error.message, now_ms, for_good=for_good)
        if runtime.model.is_llm:
            self._noted(runtime)
