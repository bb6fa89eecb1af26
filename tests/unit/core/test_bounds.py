"""Every number of a definition has bounds: a new one is refused beyond them, one that is stored already is put within them."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from anchorwatch.core.agents import HEARTBEAT_S_MAX, WAITING_MAX, AgentSpec
from anchorwatch.core.errors import BadInput
from anchorwatch.core.faults import place_of, problem_of
from anchorwatch.core.times import MS_MAX, MS_MIN, from_iso, iso
from anchorwatch.settings import Settings
from anchorwatch_fleet.config import FleetConfig, checked_config, fleet_config
from pydantic import BaseModel, ValidationError

from tests.unit.core.test_faults import AGENT

KEPT_BY_CLOCKS = 10**13


def fault_of(given: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as refused:
        AgentSpec.model_validate(AGENT | given)
    (fault,) = refused.value.errors()
    return f"{place_of(fault, 'the file')} {problem_of(fault)}"


@pytest.mark.parametrize("heartbeat_s", [1e13, 1e300, HEARTBEAT_S_MAX + 1])
def test_heartbeat_that_never_beats_is_refused(heartbeat_s: float) -> None:
    assert fault_of({"heartbeat_s": heartbeat_s}) == f"heartbeat_s must be at most {HEARTBEAT_S_MAX}"


@pytest.mark.parametrize("given", [
    {"heartbeat_s": math.inf},
    {"heartbeat_s": math.nan},
    {"heartbeat_s": True},
    {"limits": {"min_interval_s": math.inf}},
    {"limits": {"day_cost_max": math.nan}},
])  # fmt: skip
def test_non_number_is_refused(given: dict[str, Any]) -> None:
    assert fault_of(given).endswith("must be a number")


@pytest.mark.parametrize("value", [True, "6", 6.0])
def test_limit_that_only_resembles_a_number_is_refused(value: object) -> None:
    assert fault_of({"limits": {"turns_per_hour": value}}) == "limits.turns_per_hour must be a whole number"


def test_nonexistent_limit_is_refused() -> None:
    assert fault_of({"limits": {"nosuch": 5}}) == "limits.nosuch is not a known field"


def numbers(model: type[BaseModel], place: str = "") -> list[str]:
    """The numbers of a model that have no upper bound."""
    found = []
    for name, field in model.model_fields.items():
        is_number = re.search(r"\b(int|float)\b", str(field.annotation))
        if is_number and not any(hasattr(each, "le") for each in field.metadata):
            found.append(f"{place}{name}")
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found += numbers(field.annotation, f"{name}.")
    return found


def test_every_number_that_a_person_gives_has_an_upper_bound() -> None:
    # The version is counted by the mesh, and in what a person gives it says nothing.
    assert numbers(AgentSpec) == ["version"]
    assert numbers(Settings) == []
    assert numbers(FleetConfig) == []


def test_stored_definition_is_clamped_to_the_bounds() -> None:
    stored = AGENT | {
        "heartbeat_s": 1e13,
        "limits": {"nosuch": 5, "steps_max": 3, "waiting_max": 10**15, "turn_tokens_max": None},
        "config": {"fleet_limit": 3},
        "version": 4,
    }
    spec = AgentSpec.stored(json.loads(json.dumps(stored)))
    assert spec.heartbeat_s == HEARTBEAT_S_MAX
    assert (spec.limits.steps_max, spec.limits.waiting_max) == (3, WAITING_MAX)
    assert spec.config == {"fleet_limit": 3}
    assert AgentSpec.stored(AGENT | {"heartbeat_s": math.inf}).heartbeat_s is None
    with pytest.raises(ValidationError):
        AgentSpec.stored(AGENT | {"limits": {"steps_max": 0}})
    with pytest.raises(ValidationError):
        AgentSpec.stored([])


def test_pack_settings_are_bounded_too() -> None:
    agent = AgentSpec.model_validate(AGENT | {"config": {"idle_s": 1e300, "blind_s": None}})
    with pytest.raises(BadInput, match=r"config\.idle_s must be at most"):
        checked_config(agent)
    assert fleet_config(agent).blind_s == FleetConfig().blind_s


@pytest.mark.parametrize("at_ms", [KEPT_BY_CLOCKS * 1000, MS_MAX, 0, MS_MIN, -(10**30)])
def test_instant_outside_the_calendar_is_the_nearest_valid_one(at_ms: int) -> None:
    assert from_iso(iso(at_ms)) == min(max(at_ms, MS_MIN), MS_MAX)
