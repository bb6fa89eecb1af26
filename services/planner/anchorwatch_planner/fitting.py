"""Fits the request into its token budget before each model call: shorter by rungs, then by a summary of whole turns.

One number decides: the model's count of the request as it is sent. A summary is committed before the turns that it replaces are
dropped, and each one leaves fewer turns, so this ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog
from anchorwatch.context import prompt, summarise
from anchorwatch.context.floor import fixed_tokens
from anchorwatch.context.ladder import Rung, shortened_runs
from anchorwatch.context.template import TEMPLATE
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.core.facts import Observation
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Compact
from anchorwatch.core.session.conversation import summarised
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.joining import joining
from anchorwatch.core.session.state import Input, Summary
from anchorwatch.edges import Edge, around
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.models.port import (
    ContextOverflow,
    Measures,
    Model,
    ModelRefused,
    ModelRequest,
    ModelUnavailable,
)
from anchorwatch.service.context import Clock

from anchorwatch_planner.account import Account, Accounts
from anchorwatch_planner.runtimes import AgentRuntime, Bounds

PAST_RUNGS = (Rung.WHOLE, Rung.FOLDED, Rung.OLD_OUTPUTS, Rung.PAST_OUTPUTS, Rung.PAST_TEXTS)
TURN_RUNGS = (Rung.EARLIER_STEPS, Rung.ALL_OUTPUTS, Rung.SHORT_SUMMARY)
ROOM_SHARE = 0.6
"""The share of the budget below which a compaction brings the request, so that the next steps need none."""
NO_PROGRESS_MAX = 2
MEASURED_MAX = 4
"""How many requests are tried at most when the endpoint counts more than expected."""
BUDGET_HINT = "raise ANCHORWATCH_CONTEXT_TOKENS_MAX, grant fewer tools, or withdraw labelled lines (`anchorwatch critical`)"


class OverBudget(AnchorWatchError):
    """The request does not fit into its budget, even with the shortest form of the conversation."""

    code = "over_budget"


@dataclass(frozen=True, slots=True)
class Fitted:
    """A request within its budget, and the state that it was built from.

    ``tokens``: its count; ``rung``: how far it was shortened; ``said``: the inputs that join the turn with it.
    """

    state: SessionState
    request: ModelRequest
    tokens: int
    rung: Rung
    said: tuple[Input, ...] = ()

    @property
    def context(self) -> Mapping[str, Any]:
        """What is needed to rebuild the request from the state; recorded with the step."""
        summary, shortened = self.state.summary, shortened_runs(self.state.history, self.rung)
        return {
            "template": TEMPLATE,
            "rung": self.rung.name.lower(),
            "read": [self.state.head, self.state.read_through],
            **({"shortened": list(shortened)} if shortened else {}),
            **({"summary": summary.through_run} if summary else {}),
        }


@dataclass(frozen=True, slots=True)
class _Question:
    """The parts of a request, except for the state and the rung."""

    runtime: AgentRuntime
    observation: Observation
    heartbeat_s: float
    budget: int
    said: tuple[Input, ...]

    def request(self, state: SessionState, rung: Rung) -> ModelRequest:
        return prompt.build(
            state, self.runtime.agent, self.runtime.pack, self.runtime.tools, self.observation,
            heartbeat_s=self.heartbeat_s, rung=rung, said=self.said,
        )  # fmt: skip

    def tokens(self, state: SessionState, rung: Rung) -> int:
        return self.runtime.model.count(self.request(state, rung))


@dataclass(frozen=True, slots=True)
class _Written:
    """The result of a summary by the model: the state with it, or the reason why there is none."""

    state: SessionState | None = None
    because: str = ""


class Fitter:
    """Fits requests, and records the compactions that this needs."""

    def __init__(
        self,
        sessions: SessionJournal,
        execution_id: str,
        clock: Clock,
        bounds: Bounds,
        accounts: Accounts,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._sessions = sessions
        self._execution_id = execution_id
        self._clock = clock
        self._bounds = bounds
        self._accounts = accounts
        self._log = log

    async def fit(
        self, ref: SessionRef, account: Account, runtime: AgentRuntime, observation: Observation
    ) -> Fitted:
        """The request for the running turn's next step, with the messages that arrived meanwhile if there is room for them.

        If the endpoint counts tokens itself, its count decides.

        Raises:
            OverBudget: nothing more can be left out. BudgetSpent: a summary is needed, and may not be called for.
            Fenced, Unavailable: a compaction could not be recorded.
        """
        budget = self._bounds.budget_of(runtime)
        for _ in range(MEASURED_MAX):
            fitted = await self._fit_counted(ref, account, runtime, observation)
            if not runtime.model.is_llm:
                # Rules are sent nothing, so there is no other count.
                return fitted
            tokens = await _size(runtime.model, fitted.request)
            if tokens <= budget:
                return replace(fitted, tokens=tokens)
            # The estimate is corrected by that count: the next request is shorter.
        raise OverBudget(f"the endpoint counts {tokens} tokens, the budget is {budget}", hint=BUDGET_HINT)

    async def _fit_counted(
        self, ref: SessionRef, account: Account, runtime: AgentRuntime, observation: Observation
    ) -> Fitted:
        """As `fit`, by our own count."""
        state = account.state
        with_all = self._question(runtime, observation, joining(state))
        fitted = _first_that_fits(with_all, state, PAST_RUNGS)
        if fitted is not None:
            return fitted
        # Inputs that can wait for the next turn must not push anything out of this one.
        return await self._fit(
            ref, account, self._question(runtime, observation, joining(state, steered_only=True))
        )

    def _question(
        self, runtime: AgentRuntime, observation: Observation, said: tuple[Input, ...]
    ) -> _Question:
        heartbeat_s, budget = self._bounds.heartbeat_of(runtime), self._bounds.budget_of(runtime)
        return _Question(runtime, observation, heartbeat_s, budget, said)

    async def _fit(self, ref: SessionRef, account: Account, question: _Question) -> Fitted:
        stuck = 0
        while True:
            state = account.state
            fitted = _first_that_fits(question, state, PAST_RUNGS)
            if fitted is not None:
                return fitted
            _check_fixed(question, state)
            if not state.history or stuck >= NO_PROGRESS_MAX:
                break
            before = question.tokens(state, PAST_RUNGS[-1])
            await self._compact(ref, account, question, before)
            stuck = 0 if question.tokens(account.state, PAST_RUNGS[-1]) < before else stuck + 1
        fitted = _first_that_fits(question, state, TURN_RUNGS)
        if fitted is None:
            raise _too_large(question, state)
        return fitted

    def preview(
        self, state: SessionState, runtime: AgentRuntime, observation: Observation
    ) -> tuple[Fitted, int, str]:
        """(the request as it would be built now, its budget, what must happen first; empty: nothing)."""
        question = self._question(runtime, observation, joining(state))
        fitted = _first_that_fits(question, state, PAST_RUNGS)
        if fitted is not None:
            return fitted, question.budget, ""
        first, shorter = "", state
        if state.history:
            turns = _turns_to_go(question, state)
            first = f"a summary of the {turns} oldest turns, about as this one from the records"
            shorter = summarise.without(state, turns, question.budget)
        fitted = _first_that_fits(question, shorter, PAST_RUNGS + TURN_RUNGS)
        if fitted is None:
            request = question.request(shorter, TURN_RUNGS[-1])
            fitted = Fitted(shorter, request, runtime.model.count(request), TURN_RUNGS[-1])
            first = "nothing more can be left out: the turn would end over_budget"
        return fitted, question.budget, first

    async def _compact(self, ref: SessionRef, account: Account, question: _Question, before: int) -> None:
        turns = _turns_to_go(question, account.state)
        written = await self._written(ref, account, question, turns, before)
        state = account.state
        shorter = written.state or summarise.without(state, turns, question.budget)
        assert shorter.summary is not None  # noqa: S101 - at least one turn went
        tokens = (before, question.tokens(shorter, PAST_RUNGS[-1]))
        command = Compact(self._execution_id, shorter.summary, tokens, written.because, account.settlement())
        self._log.info(
            "context.compacted", session=str(ref), tokens=tokens, source=shorter.summary.source,
            reason=written.because,
        )  # fmt: skip
        with around(Edge.PLANNER_COMPACTION_BEFORE):
            after = await self._sessions.append(ref, state, decide(state, command), self._clock.now_ms())
        account.settle(after)

    async def _written(
        self, ref: SessionRef, account: Account, question: _Question, turns: int, before: int
    ) -> _Written:
        """Ask the model for a summary of at most ``turns`` turns. Errors as `Accounts.complete`, except those of the model."""
        model, state = question.runtime.model, account.state
        if not model.is_llm:
            return _Written(because="the agent runs on rules, which write no summary")
        situation = question.request(state, Rung.WHOLE).situation
        while True:
            request = summarise.request(state, turns, question.budget, situation)
            size = await _size(model, request)
            if size <= question.budget:
                break
            if turns == 1:
                return _Written(because="a single turn is too large to be summarised")
            turns //= 2
        try:
            reply = await self._accounts.complete(ref, account, question.runtime, request, size)
        except (ModelUnavailable, ModelRefused, ContextOverflow) as error:
            self._log.warning("context.summary_failed", session=str(ref), code=error.code, reason=str(error))
            return _Written(because=error.code)
        state = account.state
        read = summarise.read(state, turns, reply)
        if not isinstance(read, Summary):
            return _Written(because=f"the model's summary: {read}")
        shorter = summarised(state, read)
        if question.tokens(shorter, PAST_RUNGS[-1]) >= before:
            return _Written(because="the model's summary is not shorter than the turns it replaces")
        return _Written(shorter)


async def _size(model: Model, request: ModelRequest) -> int:
    """Tokens of a request that is about to be sent, counted by the endpoint if it can."""
    measured = await model.measure(request) if isinstance(model, Measures) else None
    return measured or model.count(request)


def _first_that_fits(question: _Question, state: SessionState, rungs: tuple[Rung, ...]) -> Fitted | None:
    for rung in rungs:
        request = question.request(state, rung)
        tokens = question.runtime.model.count(request)
        if tokens <= question.budget:
            return Fitted(state, request, tokens, rung, question.said)
    return None


def _check_fixed(question: _Question, state: SessionState) -> None:
    """Refuse a request that no summary makes fit, before one is paid for.

    Raises:
        OverBudget: it does not fit even without any earlier turn.
    """
    bare = state._replace(history=(), summary=None)
    if question.tokens(bare, TURN_RUNGS[-1]) > question.budget:
        raise _too_large(question, bare)


def _turns_to_go(question: _Question, state: SessionState) -> int:
    choices = summarise.choices(state)
    room = question.budget * ROOM_SHARE
    for turns in choices:
        if question.tokens(summarise.without(state, turns, question.budget), PAST_RUNGS[-1]) <= room:
            return turns
    return choices[-1]


def _too_large(question: _Question, state: SessionState) -> OverBudget:
    tokens = question.tokens(state, TURN_RUNGS[-1])
    runtime = question.runtime
    fixed = fixed_tokens(state, runtime.agent, runtime.pack, runtime.model)
    return OverBudget(
        f"the request has {tokens} tokens without any earlier turn, {fixed} of them fixed; its budget is {question.budget}",
        hint=BUDGET_HINT,
    )
