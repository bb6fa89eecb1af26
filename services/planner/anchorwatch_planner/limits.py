"""An agent's limits: when a session's next turn is due under them, and how many inputs may wait meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.anchor import Pace
from anchorwatch.core.errors import BadSettings, NotFound
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.pacing import CLOCKS_MS_MAX, FREE, NO_PROGRESS_RUNS, Held, Rate, excess
from anchorwatch.core.session.state import Input
from anchorwatch.core.session.wakes import Due, Never, NotBefore, Windows, due
from anchorwatch.journal.commit import Write
from anchorwatch.journal.paces import Account, PaceJournal
from anchorwatch.service.rates import rate_of, shared_rate_of, waiting_max_of
from anchorwatch.settings import Settings

AgentOf = Callable[[SessionRef, SessionState], Awaitable[AgentSpec]]


@dataclass(frozen=True, slots=True)
class DueTurn:
    """When a turn is due, and until when limits hold the session. ``account``: shared by all sessions of its agent."""

    found: Due | NotBefore | Never
    held: Held
    account: Account | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Applies the limits. ``agent_of`` finds the newest definition of a session's agent."""

    settings: Settings
    windows: Windows
    agent_of: AgentOf
    paces: PaceJournal

    async def due(self, ref: SessionRef, state: SessionState, now_ms: int, horizon_ms: int) -> DueTurn:
        """When the next turn is due, as of ``horizon_ms``, and until when limits hold the session, as of ``now_ms``.

        Raises:
            Unavailable.
        """
        rate = await self._rate(ref, state)
        held = rate.held(state.anchor, now_ms) if rate and state.anchor else FREE
        found = due(state, horizon_ms, self.windows, held)
        if not _is_now(found, horizon_ms) or (account := await self._account(ref, state)) is None:
            return DueTurn(found, held)
        held = held.and_until(account.hold(now_ms))
        return DueTurn(due(state, horizon_ms, self.windows, held), held, account)

    async def is_too_late(self, ref: SessionRef, state: SessionState, ahead_ms: int) -> bool:
        """Whether a check ``ahead_ms`` from now is later than the heartbeat allows: a fast clock scheduled it.

        Raises:
            Unavailable.
        """
        try:
            agent = await self.agent_of(ref, state)
        except (NotFound, BadSettings):
            return False
        return ahead_ms > (agent.heartbeat_s or self.settings.heartbeat_s) * 1000 + CLOCKS_MS_MAX

    async def overflow(self, ref: SessionRef, state: SessionState) -> Sequence[Input]:
        """The inputs to refuse in a session that is held (by limits, a pause or a kill switch), because too many wait.

        Raises:
            Unavailable.
        """
        anchor = state.anchor
        if anchor is None or state.turn is not None or anchor.status not in ("idle", "paused"):
            return ()
        try:
            agent = await self.agent_of(ref, state)
        except (NotFound, BadSettings):
            return ()
        return excess(state, waiting_max_of(agent, self.settings))

    def spend(self, account: Account | None, ref: SessionRef, now_ms: int) -> Sequence[Write]:
        """The write that counts a turn that begins now for all sessions of the agent."""
        return () if account is None else (self.paces.spend(account, ref, now_ms),)

    async def _account(self, ref: SessionRef, state: SessionState) -> Account | None:
        """The account that all sessions of the agent share, if it has such a limit."""
        try:
            agent = await self.agent_of(ref, state)
        except (NotFound, BadSettings):
            return None
        rate = shared_rate_of(agent, self.settings)
        return await self.paces.read(ref, agent.name, rate) if rate else None

    def begun(self, agent: AgentSpec, state: SessionState, now_ms: int) -> Pace | None:
        """The session's account after a turn that begins now."""
        return rate_of(agent, self.settings).begun(state.anchor, now_ms) if state.anchor else None

    async def _rate(self, ref: SessionRef, state: SessionState) -> Rate | None:
        """The limits that may hold the session; None: without an account and with progress, none does."""
        anchor = state.anchor
        if anchor is None or (anchor.pace is None and anchor.runs_without_progress < NO_PROGRESS_RUNS):
            return None
        try:
            return rate_of(await self.agent_of(ref, state), self.settings)
        except (NotFound, BadSettings):
            # The turn that begins then reports what is missing.
            return None


def _is_now(found: Due | NotBefore | Never, horizon_ms: int) -> bool:
    return isinstance(found, Due) or (
        isinstance(found, NotBefore) and found.check and found.at_ms <= horizon_ms
    )
