"""What an agent thinks with, and what bounds its thinking."""

from __future__ import annotations

from dataclasses import dataclass, field

from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.session.spending import Budget, Prices
from anchorwatch.core.tools import ToolSpec
from anchorwatch.models.corrected import CorrectedModel
from anchorwatch.models.health import Health
from anchorwatch.models.port import Model
from anchorwatch.packs.port import Pack


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a model is asked; None: as the settings say. ``name``: what agents call it; ``place``: its endpoint.

    ``is_measured``: the endpoint has a counter of its own.
    """

    name: str = ""
    place: str = ""
    profile: str = ""
    counter: str = ""
    is_measured: bool = False
    context_tokens_max: int | None = None
    timeout_s: float | None = None
    prices: Prices | None = None

    @property
    def kept_at(self) -> str:
        """Under which place what is learned of the model is kept: beside a counter of its own the estimate is another one."""
        return f"{self.place} (measured)" if self.is_measured else self.place


@dataclass(slots=True)
class Standing:
    """How a model has answered this process; one for all agents that ask it."""

    health: Health = field(default_factory=Health)


@dataclass(frozen=True, slots=True)
class Mind:
    """What an agent thinks with: its definition, pack, granted tools and model; and with what else where that does not answer."""

    agent: AgentSpec
    pack: Pack
    tools: tuple[ToolSpec, ...]
    model: Model
    terms: Terms = Terms()
    standing: Standing = field(default_factory=Standing)
    others: tuple[Mind, ...] = ()

    def in_turn(self, now_ms: int) -> tuple[Mind, ...]:
        """This mind and the others, in the order in which they are asked: those that failed lately come last."""
        minds = (self, *self.others)
        # A sort that leaves equals in their order.
        return tuple(sorted(minds, key=lambda each: not each.standing.health.is_worth_asking(now_ms)))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Settings that bound a step; an agent's own limits and a model's own terms go first. Seconds and tokens."""

    heartbeat_s: float
    model_timeout_s: float
    context_tokens_max: int
    prices: Prices = field(default_factory=Prices)

    def heartbeat_of(self, mind: Mind) -> float:
        return mind.agent.heartbeat_s or self.heartbeat_s

    def budget_of(self, mind: Mind) -> int:
        wanted = mind.agent.limits.context_tokens_max or self.context_tokens_max
        largest = mind.model.largest if isinstance(mind.model, CorrectedModel) else None
        return min(wanted, mind.terms.context_tokens_max or wanted, largest or wanted)

    def timeout_of(self, mind: Mind) -> float:
        return mind.terms.timeout_s or self.model_timeout_s

    def prices_of(self, mind: Mind) -> Prices:
        return self.prices if mind.terms.prices is None else mind.terms.prices

    def spending_of(self, mind: Mind) -> Budget:
        limits = mind.agent.limits
        return Budget(limits.turn_tokens_max, limits.day_tokens_max, limits.day_cost_max)
