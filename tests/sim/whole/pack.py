"""The pack of the whole-mesh simulation: tools of all effect classes on a `Provider`, and rules that follow from the run."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from anchorwatch.core.agents import AgentSpec, Limits
from anchorwatch.core.emergency import Emergency, Sighting
from anchorwatch.core.facts import UNKNOWN, Facts, Observation
from anchorwatch.core.session.pacing import Rate
from anchorwatch.core.tools import EffectClass, Invariant, Risk, ToolSpec
from anchorwatch.models.port import ProposedCall, Situation, StepDecision
from anchorwatch.packs.port import (
    PackEnvironment,
    PackRuntime,
    Probed,
    Reconciled,
    ToolContext,
    ToolResult,
)

from tests.sim.whole.provider import SETTLE_S, TIMEOUT_S, Provider, running

MEMORY = "memory"
HEARTBEAT_S = 3_000.0
SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"item": {"type": "string"}, "answer": {"enum": ["plain", "large", "file", "notify"]}},
    "required": ["item"],
    "additionalProperties": False,
}


def _tool(name: str, effect_class: EffectClass, **more: Any) -> ToolSpec:
    options: dict[str, Any] = {"timeout_s": TIMEOUT_S, "settle_s": SETTLE_S, "risk": Risk.LOW, **more}
    options.setdefault("observation_age_max_s", float("inf"))
    return ToolSpec(name, f"tool {name}", options.pop("parameters", SCHEMA), effect_class, **options)


TOOLS = (
    _tool("look", EffectClass.READ),
    _tool("peek", EffectClass.READ, ephemeral=True),
    _tool("set", EffectClass.IDEMPOTENT),
    _tool("build", EffectClass.RECONCILABLE),
    _tool("make", EffectClass.RECONCILABLE),
    _tool("fire", EffectClass.IRREVERSIBLE),
    _tool("guarded", EffectClass.IRREVERSIBLE, observation_age_max_s=60.0),
    _tool(
        "remember",
        EffectClass.IDEMPOTENT,
        pool=MEMORY,
        parameters={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    ),
)
CLASSES = {tool.name: tool.effect_class for tool in TOOLS if tool.pool != MEMORY}
ANSWERS = ("plain", "plain", "plain", "large", "file", "notify")
INVARIANTS = (Invariant("ready", ("guarded",), "observation.ready", needs=("ready",), message="not ready"),)


@dataclass
class Runtime:
    """One process's connection to the provider."""

    provider: Provider

    async def observe(self) -> Observation:
        await running()
        if self.provider.troubles and random.random() < self.provider.troubles.get("slow", 0.0):
            await asyncio.sleep(0.5)
        facts: Facts = {"alarms": self.provider.alarms, "ready": self.provider.ready}
        text = json.dumps(facts)
        return Observation(
            text, facts, at_ms=self.provider.now_ms(), digest=sha256(text.encode()).hexdigest(), data=facts
        )

    def changes(self, before: Observation | None, now: Observation) -> Sequence[Probed]:
        alarms = now.facts.get("alarms")
        if not alarms or (before is not None and before.facts.get("alarms") == alarms):
            return ()
        return (Probed(f"alarm-{alarms}", "world", "alarm.raised", "P0", {"number": alarms}),)

    async def run(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return await self.provider.run(tool, args, context)

    async def reconcile(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> Reconciled:
        del tool, args
        return await self.provider.reconcile(context.effect_key)

    async def close(self) -> None:
        pass


@dataclass
class WorldPack:
    """What a turn does is drawn from ``seed``, the session (its objective names it) and the number of the run and step."""

    provider: Provider
    seed: int
    calls_max: int
    name: str = "world"
    version: str = "1"

    def tools(self, agent: AgentSpec) -> Sequence[ToolSpec]:
        del agent
        return TOOLS

    def invariants(self, agent: AgentSpec) -> Sequence[Invariant]:
        del agent
        return INVARIANTS

    def prompt(self, agent: AgentSpec) -> tuple[str, str]:
        return f"You are {agent.name}.", "Be careful."

    def resource(self, tool: str, args: Mapping[str, Any]) -> str:
        return f"{tool}/{args.get('item', '')}"

    def reduce(self, facts: Facts, observation: Observation) -> dict[str, Any]:
        return {**facts, **observation.facts}

    def emergency(self, facts: Facts) -> Sighting:
        alarms = facts.get("alarms")
        if not isinstance(alarms, int):
            return UNKNOWN
        # Every second alarm says that all is well again.
        return Emergency(f"alarm-{alarms}", f"alarm {alarms} was raised") if alarms % 2 else False

    def rules(self, situation: Situation) -> StepDecision:
        step = len(situation.steps)
        chance = random.Random(f"{self.seed} {situation.objectives[0]} {situation.run_id} {step}")
        if step >= chance.choice((1, 1, 1, 2, 3)):
            return StepDecision("done")
        count = chance.randint(1, self.calls_max)
        return StepDecision(
            f"step {step + 1}", tuple(self._call(chance, situation.run_id) for _ in range(count))
        )

    def _call(self, chance: random.Random, run_id: int) -> ProposedCall:
        tool = chance.choice(TOOLS)
        if tool.name == "remember":
            return ProposedCall(tool.name, {"text": f"run {run_id} was here"})
        # Some calls are for the resource of others.
        item = chance.choice((f"run-{run_id}-{chance.randrange(1_000)}", f"run-{run_id}", "shared"))
        return ProposedCall(tool.name, {"item": item, "answer": chance.choice(ANSWERS)})

    def check(self, agent: AgentSpec) -> None:
        pass

    async def connect(self, environment: PackEnvironment) -> PackRuntime:
        del environment
        return Runtime(self.provider)


SHARED_RATE = Rate(turns_per_hour=1_200, burst=2)
"""What the sessions of an agent share, where it has such a limit."""


def world_agent(*, sharing: bool = False) -> AgentSpec:
    """The agent of every session. ``sharing``: its sessions share `SHARED_RATE`."""
    shared = (
        {"agent_turns_per_hour": SHARED_RATE.turns_per_hour, "burst": SHARED_RATE.burst} if sharing else {}
    )
    return AgentSpec(
        name="keeper",
        pack="world",
        grants=tuple(tool.name for tool in TOOLS),
        subscriptions=("world.>",),
        heartbeat_s=HEARTBEAT_S,
        limits=Limits(steps_max=6, **shared),
    )
