"""The fleet pack: its pure half in one object, made of the parts beside this file."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from anchorwatch import __version__
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.bounds import within
from anchorwatch.core.errors import NotFound, Unavailable
from anchorwatch.core.facts import Facts, Observation
from anchorwatch.core.tools import Invariant, ToolSpec
from anchorwatch.models.port import Situation, StepDecision
from anchorwatch.packs.fleet import cli, policy, toolspecs
from anchorwatch.packs.fleet.config import FleetConfig, checked_config, fleet_config
from anchorwatch.packs.fleet.prompt import prompt
from anchorwatch.packs.fleet.rules import rules
from anchorwatch.packs.fleet.runtime import FleetRuntime
from anchorwatch.packs.port import PackEnvironment, Stimulus

EXERCISE_JOBS = 6


class FleetPack:
    """Keeps a fleet of workers working. See docs/fleet.md."""

    name = "fleet"
    version = __version__

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

    def emergency(self, facts: Facts) -> str | None:
        return policy.emergency(facts)

    def rules(self, situation: Situation) -> StepDecision:
        # Beside the pack's settings, the limits hold those that any agent has.
        ours = {name: value for name, value in situation.limits.items() if name in FleetConfig.model_fields}
        return rules(situation, within(FleetConfig, ours))

    def check(self, agent: AgentSpec) -> None:
        checked_config(agent)

    async def exercise(self, environment: PackEnvironment, number: int) -> Sequence[Stimulus]:
        """A few small jobs, and the death of the oldest worker that works."""
        bus = environment.bus
        await cli.add_jobs(
            bus, EXERCISE_JOBS, size="small", batch=f"exercise-{environment.agent.name}-{number}"
        )
        told = await cli.status(bus)
        running = [each["id"] for each in told["instances"] or () if each["state"] == "running"]
        if running:
            # The yard may have died meanwhile, or the worker.
            with contextlib.suppress(Unavailable, NotFound):
                await cli.kill(bus, running[0])
        return (Stimulus(f"{EXERCISE_JOBS} small jobs were queued"),)

    async def connect(self, environment: PackEnvironment) -> FleetRuntime:
        return FleetRuntime(environment.bus, fleet_config(environment.agent))
