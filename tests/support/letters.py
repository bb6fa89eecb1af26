"""Reads and orders dead letters, and packs whose calls fail."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anchorwatch.bus.port import Bus
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.letters import Action, DeadLetter, Verb, ordered
from anchorwatch.core.tools import ToolSpec
from anchorwatch.journal.letters import LetterJournal, read_letter
from anchorwatch.models.port import ProposedCall, Situation, StepDecision
from anchorwatch.packs import registry
from anchorwatch.packs.port import PackEnvironment, PackRuntime, ToolContext, ToolResult
from anchorwatch.testing.bus.loop import run as run_virtual
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.streams import DEAD

from tests.support.packs import BENCH, BenchPack, BenchRuntime, Sink


async def letters(bus: Bus) -> list[DeadLetter]:
    """Every letter, in the order of its last change."""
    page = await bus.range(DEAD, "aw.dead.>", 1, limit=1_000)
    return [letter for stored in page.messages if (letter := read_letter(stored).letter) is not None]


async def only_letter(bus: Bus) -> DeadLetter | None:
    """The letter, where there is exactly one."""
    found = await letters(bus)
    assert len(found) <= 1, found
    return found[0] if found else None


async def order(bus: Bus, letter: DeadLetter, verb: Verb, at_ms: int, key: str = "k") -> None:
    """Write an order about a letter, as the gateway does."""
    action = Action(verb, "a person", at_ms, key)
    await LetterJournal(bus, "outside").change(
        letter.address, lambda now: ordered(now, action) if now else None, at_ms
    )


def mesh_test(body: Callable[[SimMesh], Coroutine[Any, Any, None]], seed: int = 1, **settings: Any) -> None:
    """Run ``body`` on a mesh in virtual time."""

    async def main() -> None:
        mesh = SimMesh(seed=seed, **settings)
        try:
            await body(mesh)
        finally:
            await mesh.close()

    registry.register(BENCH)
    run_virtual(main(), seed)


def in_state(bus: Bus, state: str, openings: int | None = None) -> Callable[[], Awaitable[bool]]:
    """A condition: the only letter is in this state (and was opened ``openings`` times)."""

    async def condition() -> bool:
        letter = await only_letter(bus)
        return letter is not None and letter.state == state and openings in (None, letter.openings)

    return condition


@dataclass
class PoisonRuntime(BenchRuntime):
    """The bench's runtime; ``deadly`` is called in place of each tool."""

    deadly: Callable[[], Awaitable[None]] | None = None

    async def run(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        if self.deadly is not None:
            await self.deadly()
        return await super().run(tool, args, context)


class PoisonPack(BenchPack):
    """The bench; ``broken``: connecting fails. Each turn decides one call of ``tool``, and then ends."""

    name = "poison"

    def __init__(self, tool: str = "fire") -> None:
        self.tool = tool
        self.broken = False
        self.deadly: Callable[[], Awaitable[None]] | None = None

    def tools(self, agent: AgentSpec) -> Sequence[ToolSpec]:
        # Not read in these tests.
        return [replace(tool, observation_age_max_s=math.inf) for tool in super().tools(agent)]

    def rules(self, situation: Situation) -> StepDecision:
        if situation.steps:
            return StepDecision("done")
        return StepDecision("", (ProposedCall(self.tool, {"item": f"r{situation.run_id}"}),))

    async def connect(self, environment: PackEnvironment) -> PackRuntime:
        if self.broken:
            raise ZeroDivisionError("this pack cannot connect")
        return PoisonRuntime(
            Sink(Path(environment.agent.config["directory"])), honour=True, deadly=self.deadly
        )
