"""What an agent thinks with, and what bounds its thinking."""

from __future__ import annotations

from dataclasses import dataclass, field

from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.session.spending import Budget, Prices
from anchorwatch.core.tools import ToolSpec
from anchorwatch.models.port import Model
from anchorwatch.packs.port import Pack


@dataclass(frozen=True, slots=True)
class Mind:
    """What an agent thinks with: its definition, pack, granted tools and model."""

    agent: AgentSpec
    pack: Pack
    tools: tuple[ToolSpec, ...]
    model: Model


@dataclass(frozen=True, slots=True)
class Bounds:
    """Settings that bound a step; an agent's own limits go first. Seconds and tokens."""

    heartbeat_s: float
    model_timeout_s: float
    context_tokens_max: int
    prices: Prices = field(default_factory=Prices)

    def heartbeat_of(self, mind: Mind) -> float:
        return mind.agent.heartbeat_s or self.heartbeat_s

    def budget_of(self, mind: Mind) -> int:
        return mind.agent.limits.context_tokens_max or self.context_tokens_max

    def spending_of(self, mind: Mind) -> Budget:
        limits = mind.agent.limits
        return Budget(limits.turn_tokens_max, limits.day_tokens_max, limits.day_cost_max)
