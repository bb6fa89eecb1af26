"""An agent: a versioned definition, checked once, then trusted.

Every number has bounds, since each becomes an instant, a duration or a count somewhere: one that no clock can hold would stop
a turn in its middle.
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
"""The highest bound on tokens, and on cost: far above what anything uses, far below what a record cannot hold."""


class Limits(BaseModel):
    """Named bounds of an agent. What only its pack knows stands in ``config``."""

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
        description="turns that a session begins by itself; 0: no bound; none: the setting",
    )
    agent_turns_per_hour: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="turns that all its sessions together begin by themselves; none: no bound",
    )
    burst: int | None = Field(
        None, ge=1, le=1000, description="turns in a row before `turns_per_hour` counts; none: the setting"
    )
    min_interval_s: float | None = Field(
        None, ge=0, le=86_400, description="between the beginnings of two turns; none: the setting"
    )
    waiting_max: int | None = Field(
        None,
        ge=2,
        le=WAITING_MAX,
        description="inputs that may wait in a session that is held; none: the setting",
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
        description="cost of a session in a day, in the unit of the prices that the settings give",
    )


def hint_of(faults: Iterable[Fault]) -> str:
    """The way out for who named a limit that there is not; empty: nobody did."""
    if not any(fault["type"] == "extra_forbidden" and "limits" in fault["loc"][:-1] for fault in faults):
        return ""
    return f"the limits are {', '.join(Limits.model_fields)}; what only the pack knows stands in `config`"


class AgentSpec(BaseModel):
    """What an agent is: the content of an agent file (TOML) and of a version in the ``agents`` bucket."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: Name
    pack: str
    model: Name = Field(
        DEFAULT, description="`default` (as the settings say), `rules`, `openai`, or one of the models' file"
    )
    fallbacks: tuple[Name, ...] = Field(
        (), max_length=8, description="models that are asked in turn where `model` does not answer"
    )
    description: str = ""
    grants: tuple[str, ...] = Field((), description="tools that it may use; nothing is granted by default")
    subscriptions: tuple[str, ...] = Field(
        (), description="event filters below aw.event.<workspace>., such as `fleet.>`"
    )
    heartbeat_s: float | None = Field(
        None,
        ge=1,
        le=HEARTBEAT_S_MAX,
        strict=True,
        description="none: the setting; how often it looks without a reason",
    )
    objectives: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    limits: Limits = Limits()
    config: dict[str, Any] = Field(default_factory=dict, description="the pack's own settings")
    version: int = Field(0, ge=0, description="set when it is applied")

    @classmethod
    def stored(cls, value: object) -> AgentSpec:
        """A version as it is stored. What an earlier release let pass, and no bound allows any more, is put within the bounds.

        Raises:
            pydantic.ValidationError: it is no definition.
        """
        return within(cls, value)

    @property
    def at_version(self) -> str:
        """``name@version``."""
        return f"{self.name}@{self.version}"
