"""An agent: a versioned definition, checked once, then trusted.

Every number is bounded, because it becomes an instant, a duration or a count: one that no clock can represent would stop
a running turn (INV-1105).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from anchorwatch.core.bounds import within
from anchorwatch.core.faults import Fault
from anchorwatch.core.names import NAME_PATTERN

Name = Annotated[str, StringConstraints(pattern=f"^{NAME_PATTERN}$")]

DEFAULT = "default"
RULES = "rules"
OPENAI = "openai"

HEARTBEAT_S_MAX: Final = 30 * 86_400
WAITING_MAX: Final = 1_000_000
CONTEXT_TOKENS_MAX: Final = 10_000_000
SPENT_MAX: Final = 1_000_000_000_000
"""Upper bound on tokens and on cost: far above any real use, far below what a record can hold."""


class Limits(BaseModel):
    """Named bounds of an agent. The pack's own limits are in ``config``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    steps_max: int = Field(16, ge=1, le=200, description="model calls in one turn")
    calls_per_step_max: int = Field(16, ge=1, le=64, description="tool calls in one step")
    context_tokens_max: int | None = Field(
        None, ge=256, le=CONTEXT_TOKENS_MAX, description="request budget; none: the setting"
    )

    repeats_max: int = Field(4, ge=1, le=100, description="the same call with the same arguments in one turn")
    turns_per_hour: int | None = Field(
        None,
        ge=0,
        le=3600,
        description="turns that a session starts by itself in an hour; 0: no bound; none: the setting",
    )
    agent_turns_per_hour: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="turns that all its sessions together start by themselves in an hour; none: no bound",
    )
    burst: int | None = Field(
        None, ge=1, le=1000, description="turns in a row before `turns_per_hour` counts; none: the setting"
    )
    min_interval_s: float | None = Field(
        None, ge=0, le=86_400, description="shortest time between the starts of two turns; none: the setting"
    )
    waiting_max: int | None = Field(
        None,
        ge=2,
        le=WAITING_MAX,
        description="inputs that may be pending in a held session; none: the setting",
    )

    turn_tokens_max: int | None = Field(
        None, ge=1, le=SPENT_MAX, description="tokens that a turn may use; none: no bound"
    )
    day_tokens_max: int | None = Field(
        None, ge=1, le=SPENT_MAX, description="tokens that a session may use in a day (UTC)"
    )
    day_cost_max: float | None = Field(
        None,
        gt=0,
        le=SPENT_MAX,
        description="cost of a session in a day (UTC), in the currency of the configured prices",
    )


def hint_of(faults: Iterable[Fault]) -> str:
    """The hint for an unknown limit; empty: all limits are known."""
    if not any(fault["type"] == "extra_forbidden" and "limits" in fault["loc"][:-1] for fault in faults):
        return ""
    return f"the limits are {', '.join(Limits.model_fields)}; limits of the pack belong in `config`"


class AgentSpec(BaseModel):
    """An agent: the content of an agent file (TOML) and of a version in the ``agents`` bucket."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: Name
    pack: str
    model: Name = Field(
        DEFAULT, description="`default` (the setting), `rules`, `openai`, or a model of the models' file"
    )
    fallbacks: tuple[Name, ...] | None = Field(
        None,
        max_length=8,
        description="models to call, in this order, when `model` does not answer; none: those of the settings for "
        "`default`, `rules` for any other model",
    )
    description: str = ""
    grants: tuple[str, ...] = Field((), description="tools that it may use; nothing is granted by default")
    subscriptions: tuple[str, ...] = Field(
        (), description="event filters below aw.event.<workspace>., such as `rack7.>`"
    )
    heartbeat_s: float | None = Field(
        None,
        ge=1,
        le=HEARTBEAT_S_MAX,
        strict=True,
        description="longest time between two turns; none: the setting",
    )
    objectives: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    limits: Limits = Limits()
    config: dict[str, Any] = Field(default_factory=dict, description="the pack's own settings")
    version: int = Field(0, ge=0, description="set when it is applied")

    @classmethod
    def stored(cls, value: object) -> AgentSpec:
        """A stored version. A number that exceeds its bound is clamped.

        Raises:
            pydantic.ValidationError: it is not a valid definition.
        """
        return within(cls, value)

    @property
    def at_version(self) -> str:
        """``name@version``."""
        return f"{self.name}@{self.version}"
