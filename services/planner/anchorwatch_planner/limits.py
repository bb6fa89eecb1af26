"""An agent's limits, where a session is looked at: when is it due under them, and how much may wait meanwhile."""

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
class Reckoned:
    """When a turn is due, and until when limits hold the session; ``account``: the one that its agent's sessions share."""

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

    async def due(self, ref: SessionRef, state: SessionState, now_ms: int, horizon_ms: int) -> Reckoned:
        """When the session's next turn is due, as of ``horizon_ms``; and until when its limits hold it, as of ``now_ms``.

        Raises:
            Unavailable.
        """
        rate = await self._rate(ref, state)
        held = rate.held(state.anchor, now_ms) if rate and state.anchor else FREE
        found = due(state, horizon_ms, self.windows, held)
        if not _is_now(found, horizon_ms) or (account := await self._account(ref, state)) is None:
            return Reckoned(found, held)
        held = held.and_until(account.hold(now_ms))
        return Reckoned(due(state, horizon_ms, self.windows, held), held, account)

    async def puts_off(self, ref: SessionRef, state: SessionState, ahead_ms: int) -> bool:
        """Whether a check that lies ``ahead_ms`` ahead is later than the heartbeat lets it be: a clock that ran ahead set it.

        Raises:
            Unavailable.
        """
        try:
            agent = await self.agent_of(ref, state)
        except (NotFound, BadSettings):
            return False
        return ahead_ms > (agent.heartbeat_s or self.settings.heartbeat_s) * 1000 + CLOCKS_MS_MAX

    async def overflow(self, ref: SessionRef, state: SessionState) -> Sequence[Input]:
        """What is to be refused in a session that is held (by its limits, a person, a kill switch), since too much waits.

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
        """What counts a turn of the session that begins now for all sessions of its agent."""
        return () if account is None else (self.paces.spend(account, ref, now_ms),)

    async def _account(self, ref: SessionRef, state: SessionState) -> Account | None:
        """The account that all sessions of the agent share, where it has such a limit."""
        try:
            agent = await self.agent_of(ref, state)
        except (NotFound, BadSettings):
            return None
        rate = shared_rate_of(agent, self.settings)
        return await self.paces.read(ref, agent.name, rate) if rate else None

    def begun(self, agent: AgentSpec, state: SessionState, now_ms: int) -> Pace | None:
        """The account of the limits after a turn that begins now."""
        return rate_of(agent, self.settings).begun(state.anchor, now_ms) if state.anchor else None

    async def _rate(self, ref: SessionRef, state: SessionState) -> Rate | None:
        """The limits of a session that they may hold; without an account, and with progress, they hold none."""
        anchor = state.anchor
        if anchor is None or (anchor.pace is None and anchor.runs_without_progress < NO_PROGRESS_RUNS):
            return None
        try:
            return rate_of(await self.agent_of(ref, state), self.settings)
        except (NotFound, BadSettings):
            # The turn that this lets begin says what is missing.
            return None


def _is_now(found: Due | NotBefore | Never, horizon_ms: int) -> bool:
    return isinstance(found, Due) or (
        isinstance(found, NotBefore) and found.check and found.at_ms <= horizon_ms
    )
