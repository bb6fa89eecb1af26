"""The pure half of the fleet pack, in one object."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from anchorwatch.packs import (
    AgentSpec,
    Bus,
    Facts,
    Invariant,
    NotFound,
    Observation,
    PackEnvironment,
    Sighting,
    Situation,
    Starter,
    StepDecision,
    Stimulus,
    ToolSpec,
    Unavailable,
    within,
)

from anchorwatch_fleet import cli, policy, toolspecs
from anchorwatch_fleet.config import SESSION, FleetConfig, checked_config, default_agent, fleet_config
from anchorwatch_fleet.prompt import prompt
from anchorwatch_fleet.rules import rules
from anchorwatch_fleet.runtime import FleetRuntime

EXERCISE_JOBS = 6


class FleetPack:
    """Keeps a fleet of workers working. See docs/fleet.md."""

    name = "fleet"
    version = version("anchorwatch-fleet")

    def tools(self, agent: AgentSpec) -> Sequence[ToolSpec]:
        return toolspecs.all_tools(fleet_config(agent).fleet_limit)

    def invariants(self, agent: AgentSpec) -> Sequence[Invariant]:  # noqa: ARG002 - they hold for every agent
        return policy.INVARIANTS

    def prompt(self, agent: AgentSpec) -> tuple[str, str]:
        return prompt(fleet_config(agent))

    def resource(self, tool: str, args: Mapping[str, Any]) -> str:
        return toolspecs.resource(tool, args)

    def reduce(self, facts: Facts, observation: Observation) -> dict[str, Any]:
        return policy.reduce(facts, observation)

    def emergency(self, facts: Facts) -> Sighting:
        return policy.emergency(facts)

    def no_progress(self, facts: Facts) -> str | None:
        return policy.no_progress(facts)

    def rules(self, situation: Situation) -> StepDecision:
        # The limits also hold those that every agent has.
        ours = {name: value for name, value in situation.limits.items() if name in FleetConfig.model_fields}
        return rules(situation, within(FleetConfig, ours))

    def check(self, agent: AgentSpec) -> None:
        checked_config(agent)

    def starter(self) -> Starter:
        return Starter(
            default_agent(), SESSION, (("add work", "fleet jobs add 1000"), ("watch", f"tail {SESSION}"))
        )

    async def health(self, bus: Bus) -> str | None:
        status = await cli.status(bus)
        if status["instances"] is None:
            return None
        return f"the yard answers: {status['facts']['instances_live']} live instances"

    async def exercise(self, environment: PackEnvironment, number: int) -> Sequence[Stimulus]:
        """Queue a few small jobs; kill the oldest running worker, let it hang, or leave it alone, in turn.

        A worker that hangs is noticed only after some seconds, so the next exercise leaves it alone.
        """
        bus = environment.bus
        await cli.add_jobs(
            bus, EXERCISE_JOBS, size="small", batch=f"exercise-{environment.agent.name}-{number}"
        )
        told = await cli.status(bus)
        running = [each["id"] for each in told["instances"] or () if each["state"] == "running"]
        how = ("hang", "", "kill")[number % 3]
        if running and how:
            # The yard or the worker may have died meanwhile.
            with contextlib.suppress(Unavailable, NotFound):
                await cli.kill(bus, running[0], how)
        return (Stimulus(f"{EXERCISE_JOBS} small jobs were queued"),)

    async def connect(self, environment: PackEnvironment) -> FleetRuntime:
        return FleetRuntime(environment.bus, fleet_config(environment.agent))
