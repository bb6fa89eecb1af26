"""The pack of the bench: rules that take no time and ask for one call a turn; its outside world is the bench's sink.

An agent's configuration names the session that is its own (``session``) and the sink's socket (``sink``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.emergency import Sighting
from anchorwatch.core.facts import Facts, Observation
from anchorwatch.core.tools import EffectClass, Invariant, Risk, ToolSpec
from anchorwatch.models.port import ProposedCall, Situation, StepDecision
from anchorwatch.packs.port import (
    OutcomeUnknown,
    PackEnvironment,
    PackRuntime,
    Probed,
    Reconciled,
    ToolContext,
    ToolResult,
)

PUT = ToolSpec(
    "put",
    "puts an item into the sink",
    {
        "type": "object",
        "properties": {"item": {"type": "string"}},
        "required": ["item"],
        "additionalProperties": False,
    },
    EffectClass.IDEMPOTENT,
    risk=Risk.LOW,
)


@dataclass
class BenchRuntime:
    """One connection to the sink, made when it is first needed."""

    path: str
    _link: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def __post_init__(self) -> None:
        self._turn = asyncio.Lock()

    async def observe(self) -> Observation:
        return Observation("all is well", {"well": True}, at_ms=time.time_ns() // 1_000_000, digest="b" * 64)

    def changes(self, before: Observation | None, now: Observation) -> Sequence[Probed]:
        del before, now
        return ()

    async def run(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        del tool
        async with self._turn:
            if self._link is None:
                self._link = await asyncio.open_unix_connection(self.path)
            reader, writer = self._link
            writer.write(f"{args['item']} {context.effect_key}\n".encode())
            answer = (await reader.readline()).decode().strip()
        if not answer:
            raise OutcomeUnknown("the sink closed the connection")
        return ToolResult(f"put: {answer}")

    async def reconcile(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> Reconciled:
        del tool, args, context
        return Reconciled("unknown")

    async def close(self) -> None:
        if self._link is not None:
            self._link[1].close()


class BenchPack:
    """Pure half."""

    name = "bench"
    version = "1"

    def tools(self, agent: AgentSpec) -> Sequence[ToolSpec]:
        del agent
        return (PUT,)

    def invariants(self, agent: AgentSpec) -> Sequence[Invariant]:
        del agent
        return ()

    def prompt(self, agent: AgentSpec) -> tuple[str, str]:
        return f"You are {agent.name}. Each event wants one item put.", "Put one item for each event, once."

    def resource(self, tool: str, args: Mapping[str, Any]) -> str:
        return f"{tool}/{args.get('item', '')}"

    def reduce(self, facts: Facts, observation: Observation) -> dict[str, Any]:
        return {**facts, **observation.facts}

    def emergency(self, facts: Facts) -> Sighting:
        del facts
        return False

    def rules(self, situation: Situation) -> StepDecision:
        if situation.steps:
            return StepDecision("done")
        item = f"{situation.limits['session']}/{situation.run_id}"
        return StepDecision("an event came", (ProposedCall("put", {"item": item}, label="put"),))

    def check(self, agent: AgentSpec) -> None:
        del agent

    async def connect(self, environment: PackEnvironment) -> PackRuntime:
        return BenchRuntime(environment.agent.config["sink"])


PACK = BenchPack()


def agent_of(session: str, sink: str) -> AgentSpec:
    """The agent whose only session is ``session``, so that an event can be meant for it alone."""
    return AgentSpec(
        name=session,
        pack=PACK.name,
        grants=(PUT.name,),
        subscriptions=(f"bench.{session}",),
        config={"session": session, "sink": sink},
    )
