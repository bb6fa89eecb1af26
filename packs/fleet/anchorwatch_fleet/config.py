"""The pack's settings in an agent's file (``[config]``), and the agent included with the pack."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import cache
from importlib.resources import files

from anchorwatch.packs import AgentSpec, BadInput, place_of, problem_of, within
from pydantic import BaseModel, ConfigDict, Field, ValidationError

SESSION = "fleet"
"""The session of the included agent."""
S_MAX = 30 * 86_400


class FleetConfig(BaseModel):
    """Bounds of the pack. Durations are seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    fleet_limit: int = Field(6, ge=1, le=64, description="most live instances")
    fleet_min: int = Field(1, ge=0, le=64, description="instances kept ready when nothing is queued")
    tasks_per_instance: int = Field(
        10, ge=1, le=1_000_000, description="queued tasks that justify one more instance"
    )
    backlog_s_max: float = Field(60, gt=0, le=S_MAX, description="a longer backlog needs more instances")
    idle_s: float = Field(900, gt=0, le=S_MAX, description="idle time before surplus instances are stopped")
    blind_s: float = Field(
        120, gt=0, le=S_MAX, description="how long a source may be silent before people are notified"
    )


def fleet_config(agent: AgentSpec) -> FleetConfig:
    """The pack's settings of a stored agent; numbers are clamped to their bounds.

    Raises:
        BadInput: names each invalid setting.
    """
    return _config(agent, lambda: within(FleetConfig, agent.config))


def checked_config(agent: AgentSpec) -> FleetConfig:
    """The pack's settings of a new agent definition; a number outside its bounds is an error."""
    return _config(agent, lambda: FleetConfig.model_validate(agent.config))


def _config(agent: AgentSpec, read: Callable[[], FleetConfig]) -> FleetConfig:
    try:
        config = read()
    except ValidationError as error:
        problems = "; ".join(f"config.{place_of(each, '')} {problem_of(each)}" for each in error.errors())
        raise BadInput(
            f"agent {agent.name}: {problems}",
            hint=f"known settings: {', '.join(FleetConfig.model_fields)}",
        ) from None
    if config.fleet_min > config.fleet_limit:
        raise BadInput(f"agent {agent.name}: config.fleet_min is above config.fleet_limit")
    return config


@cache
def default_agent() -> AgentSpec:
    """The agent included with the pack."""
    return AgentSpec.model_validate(
        tomllib.loads(files(__package__).joinpath("agent.toml").read_text("utf-8"))
    )
