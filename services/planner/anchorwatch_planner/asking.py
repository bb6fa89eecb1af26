"""Asking the model for a step; where it does not answer, the next one of the agent's list.

Each is asked by its own count and within its own budget. Which one answered, and which did not, is recorded with the step.
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
from anchorwatch.edges import Edge, reached
from anchorwatch.models.port import ContextOverflow, ModelRefused, ModelReply, ModelUnavailable
from anchorwatch.service.context import Clock

from anchorwatch_planner.fitting import Fitted, Fitter, OverBudget
from anchorwatch_planner.mind import Bounds, Mind

Noted = Callable[[Mind], None]
"""Told of a mind whose standing changed."""
NextOne = (ModelUnavailable, ModelRefused, ContextOverflow, OverBudget)
"""What is answered by asking the next model."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer: to which request, of which mind; and the models that were asked in vain, each with the code of its fault."""

    fitted: Fitted
    reply: ModelReply
    mind: Mind
    in_vain: tuple[tuple[str, str], ...] = ()


def asked_in_vain(answered: Answered) -> dict[str, Any]:
    """What a step's record says of the list: who answered, and who did not; nothing where the first one did."""
    if not answered.in_vain:
        return {}
    return {"model": answered.mind.terms.name, "in_vain": [list(each) for each in answered.in_vain]}


def _told(in_vain: list[tuple[str, str]]) -> str:
    """What is said of the models before, behind the fault of the last one."""
    return f"; before it, {', '.join(f'{name} ({code})' for name, code in in_vain)}" if in_vain else ""


class Asker:
    """Asks for one step at a time."""

    def __init__(
        self, fitter: Fitter, bounds: Bounds, clock: Clock, noted: Noted, log: structlog.stdlib.BoundLogger
    ) -> None:
        self._fitter = fitter
        self._bounds = bounds
        self._clock = clock
        self._noted = noted
        self._log = log

    async def ask(
        self, ref: SessionRef, state: SessionState, mind: Mind, observation: Observation
    ) -> Answered:
        """The answer of the first model that gives one.

        Raises:
            ModelUnavailable, ModelRefused, ContextOverflow, OverBudget: of the last that was asked.
            Fenced, Unavailable: a compaction could not be recorded.
        """
        minds = mind.in_turn(self._clock.now_ms())
        in_vain: list[tuple[str, str]] = []
        for number, each in enumerate(minds, 1):
            try:
                for again in (True, False):
                    fitted = await self._fitter.fit(ref, state, each, observation)
                    state = fitted.state
                    reply = await self._complete(ref, each, fitted, again=again)
                    if reply is not None:
                        return Answered(fitted, reply, each, tuple(in_vain))
            except NextOne as error:
                self._failed(each, error)
                if number == len(minds):
                    error.message += _told(in_vain)
                    raise
                in_vain.append((each.terms.name, error.code))
                self._log.warning(
                    "the next model is asked", session=str(ref), after=each.terms.name, code=error.code
                )
        raise AssertionError  # the last one answers or raises

    async def _complete(
        self, ref: SessionRef, mind: Mind, fitted: Fitted, *, again: bool
    ) -> ModelReply | None:
        """The model's answer; None: it finds the request too large, and may be asked ``again``, by the count that it gave."""
        reached(Edge.PLANNER_MODEL_BEFORE)
        try:
            reply = await mind.model.complete(fitted.request, self._bounds.timeout_of(mind))
        except ContextOverflow as error:
            if not again:
                raise
            self._log.warning("the request was too large", session=str(ref), why=str(error))
            return None
        reached(Edge.PLANNER_MODEL_AFTER)
        self._answered(mind, fitted, reply)
        return reply

    def _answered(self, mind: Mind, fitted: Fitted, reply: ModelReply) -> None:
        if not mind.model.is_llm:
            return
        before, now_ms = mind.standing.health, self._clock.now_ms()
        mind.standing.health = before.answered(now_ms, fitted.tokens, reply.usage.prompt_tokens)
        self._noted(mind)

    def _failed(self, mind: Mind, error: AnchorWatchError) -> None:
        if isinstance(error, OverBudget | ContextOverflow):
            # It says something of this request, and nothing of the model.
            return
        before, now_ms = mind.standing.health, self._clock.now_ms()
        # What is refused for its content says less of the model than a key that is not accepted.
        for_good = isinstance(error, ModelRefused) and error.lasting
        mind.standing.health = before.failed(error.code, error.message, now_ms, for_good=for_good)
        if mind.model.is_llm:
            self._noted(mind)
