"""An agent's limits, where a session is looked at: when is it due under them, and how much may wait meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.anchor import Pace
from anchorwatch.core.errors import BadSettings, NotFound
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.pacing import FREE, NO_PROGRESS_RUNS, Held, Rate, excess
from anchorwatch.core.session.state import Input
from anchorwatch.core.session.wakes import Due, Never, NotBefore, Windows, due
from anchorwatch.service.rates import rate_of, waiting_max_of
from anchorwatch.settings import Settings

CLOCKS_MS_MAX = 5_000
"""The clocks of processes may be this far apart."""

AgentOf = Callable[[SessionRef, SessionState], Awaitable[AgentSpec]]


@dataclass(frozen=True, slots=True)
class Limits:
    """Applies the limits. ``agent_of`` finds the newest definition of a session's agent."""

    settings: Settings
    windows: Windows
    agent_of: AgentOf

    async def due(
        self, ref: SessionRef, state: SessionState, now_ms: int, horizon_ms: int
    ) -> tuple[Due | NotBefore | Never, Held]:
        """When the session's next turn is due, as of ``horizon_ms``; and until when its limits hold it, as of ``now_ms``.

        Raises:
            Unavailable.
        """
        rate = await self._rate(ref, state)
        held = rate.held(state.anchor, now_ms) if rate and state.anchor else FREE
        return due(state, horizon_ms, self.windows, held), held

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
