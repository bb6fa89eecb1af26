"""The limits of an agent's sessions: from its definition, else from the settings."""

from __future__ import annotations

from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.session.pacing import Rate
from anchorwatch.settings import Settings

MS = 1000


def rate_of(agent: AgentSpec, settings: Settings) -> Rate:
    """The limit on automatic turns of one session of the agent."""
    limits = agent.limits
    heartbeat_s = agent.heartbeat_s or settings.heartbeat_s
    interval_s = settings.min_interval_s if limits.min_interval_s is None else limits.min_interval_s
    return Rate(
        turns_per_hour=settings.turns_per_hour if limits.turns_per_hour is None else limits.turns_per_hour,
        burst=limits.burst or settings.turn_burst,
        min_interval_ms=round(interval_s * MS),
        slowest_ms=round(heartbeat_s * MS),
    )


def shared_rate_of(agent: AgentSpec, settings: Settings) -> Rate | None:
    """The limit on automatic turns of all sessions of the agent together; None if there is none."""
    turns_per_hour = agent.limits.agent_turns_per_hour
    if turns_per_hour is None:
        return None
    return Rate(turns_per_hour=turns_per_hour, burst=agent.limits.burst or settings.turn_burst)


def waiting_max_of(agent: AgentSpec, settings: Settings) -> int:
    """The maximum number of inputs that may wait in a held session of the agent."""
    return limits.waiting_max if (limits := agent.limits).waiting_max is not None else settings.waiting_max
