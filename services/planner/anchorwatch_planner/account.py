"""Counts the model calls of one step, also those whose answers are discarded, and stops them at the session's budget.

1. A request is reserved in the journal before it is sent, under the session's fence: a replaced planner sends none (INV-623).
2. The record of the step (or of the summary, or of the turn's end) settles the reservation: the usage of every answer counts
   in its place (INV-622).
3. An answer that is discarded is recorded before the next request, and the budget is checked between the two.
4. A planner that dies after 1 leaves the estimate; the answer that it may have received is not known to anybody.

An account outlives its step only if a person's order fences the step's record: the answer then counts in the next step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from anchorwatch.core.errors import AnchorWatchError, Fenced
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import RequestModel
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.spending import COST, RESERVED, RESERVED_COST, together, used
from anchorwatch.edges import Edge, around
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.models.port import (
    ContextOverflow,
    ModelRefused,
    ModelReply,
    ModelRequest,
    ModelUnavailable,
    Retry,
)
from anchorwatch.models.usage import Usage
from anchorwatch.service.context import Clock

from anchorwatch_planner.runtimes import AgentRuntime, Bounds


class BudgetSpent(AnchorWatchError):
    """A budget of the session is spent: no model is called."""

    code = "over_budget"
    retryable: ClassVar[bool] = False


@dataclass(slots=True)
class Account:
    """The model calls of one step. ``state``: the session as this process has written it.

    ``answers``: usage of answers that no record has yet; ``reservation``: the reserved request that no record has settled.
    """

    state: SessionState
    at_ms: int
    answers: list[Mapping[str, int]] = field(default_factory=list)
    reservation: Mapping[str, int] = field(default_factory=dict)

    def settlement(self) -> dict[str, int]:
        """The usage for the record that settles the account."""
        settled = {RESERVED: self.reservation.get("prompt", 0), RESERVED_COST: self.reservation.get(COST, 0)}
        return together([*self.answers, {name: count for name, count in settled.items() if count}])

    def settle(self, state: SessionState) -> None:
        """Continue with ``state``, which has the settlement."""
        self.state, self.answers, self.reservation = state, [], {}

    @property
    def origin(self) -> tuple[int, int, int]:
        """The generation, run and number of steps that the account belongs to."""
        anchor, turn = self.state.anchor, self.state.turn
        return (
            anchor.generation if anchor else 0,
            anchor.run_id if anchor else 0,
            len(turn.steps) if turn else 0,
        )


class Accounts:
    """Calls models on account, for all sessions of a planner."""

    def __init__(self, sessions: SessionJournal, execution_id: str, clock: Clock, bounds: Bounds) -> None:
        self._sessions = sessions
        self._execution_id = execution_id
        self._clock = clock
        self._bounds = bounds
        self._fenced: dict[SessionRef, Account] = {}

    def open(self, ref: SessionRef, state: SessionState, at_ms: int) -> Account:
        """The account of the next step. ``at_ms``: the day that it counts for."""
        account = Account(state, at_ms)
        before = self._fenced.pop(ref, None)
        if before is not None and before.origin == account.origin:
            account.answers, account.reservation = before.answers, before.reservation
        return account

    def fenced(self, ref: SessionRef, account: Account) -> None:
        """Keep the account for the next step of the session, because the record that settles it was not written."""
        if account.answers or account.reservation:
            self._fenced[ref] = account

    async def complete(
        self, ref: SessionRef, account: Account, runtime: AgentRuntime, request: ModelRequest, counted: int
    ) -> ModelReply:
        """The model's answer. ``counted``: tokens of the request.

        Raises:
            BudgetSpent: also between two attempts. ModelUnavailable, ModelRefused, ContextOverflow: as `Model.complete`.
            Fenced, Unavailable: the request could not be recorded, and was not sent.
        """
        model, prices = runtime.model, self._bounds.prices_of(runtime)

        def enter(usage: Usage | None) -> None:
            if usage is not None:
                account.answers.append(prices.priced(usage.recorded(counted)))

        async def again(retry: Retry) -> None:
            enter(retry.fault.usage)
            # Its usage is in the account, whatever becomes of the next attempts.
            retry.fault.usage = None
            await self._reserve(ref, account, runtime, counted)

        if model.is_llm:
            await self._reserve(ref, account, runtime, counted)
        try:
            with around(Edge.PLANNER_MODEL_BEFORE):
                reply = await model.complete(request, self._bounds.timeout_of(runtime), again)
        except (ModelUnavailable, ModelRefused, ContextOverflow) as fault:
            enter(fault.usage)
            raise
        if model.is_llm:
            enter(reply.usage)
        return reply

    async def _reserve(self, ref: SessionRef, account: Account, runtime: AgentRuntime, counted: int) -> None:
        """Check the budget, and record that a request is about to be sent. One that used nothing stays reserved."""
        spent = account.state.spent.with_call(used(account.settlement()), account.at_ms)
        if reason := self._bounds.spending_of(runtime).exhausted(spent):
            raise BudgetSpent(reason)
        reserves = self._bounds.prices_of(runtime).priced(Usage().recorded(counted))
        if reserves == account.reservation and not account.answers:
            return
        command = RequestModel(
            self._execution_id, runtime.model.name, reserves, account.settlement(), account.at_ms
        )
        events = decide(account.state, command)
        try:
            with around(Edge.PLANNER_REQUEST_BEFORE):
                state = await self._sessions.append(ref, account.state, events, self._clock.now_ms())
        except Fenced:
            raise
        except AnchorWatchError:
            # The record may have been written: settling it again would count it twice.
            account.settle(account.state)
            raise
        account.settle(state)
        account.reservation = reserves
