"""Sessions that share a resource: one command at a time touches it, whichever session, executor or death is involved."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.tools import ToolSpec
from anchorwatch.models.port import ProposedCall, Situation, StepDecision
from anchorwatch.packs import registry
from anchorwatch.packs.port import PackEnvironment, Reconciled, ToolContext, ToolResult
from anchorwatch.testing.bus.loop import run as run_virtual
from anchorwatch.testing.mesh import SimMesh

from tests.sim.test_quarantine import last_of_kind, quarantined, restart_planner, rot
from tests.sim.test_repair import confirm, repairer
from tests.sim.whole.judge import overlaps
from tests.support.packs import BenchPack, BenchRuntime, Sink, bench_agent

ITEM = "x"


@dataclass
class Shared:
    """One real resource. ``active``: the keys at work on it now; ``overlaps``: pairs that were at work at once."""

    chance: random.Random
    active: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    overlaps: list[tuple[str, str]] = field(default_factory=list)
    tries: int = 0

    async def touch(self, key: str, seconds: float) -> None:
        self.tries += 1
        self.overlaps += [(key, other) for other in self.active - {key}]
        self.active.add(key)
        try:
            await asyncio.sleep(seconds)
            self.done.add(key)
        finally:
            # An executor that is killed sends nothing more.
            self.active.discard(key)


@dataclass
class SharedRuntime(BenchRuntime):
    """A connection to the resource. A call takes as long as its ``count`` says, in tenths of a second."""

    shared: Shared = field(default_factory=lambda: Shared(random.Random(0)))

    async def run(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        await self.shared.touch(context.effect_key, args["count"] / 10)
        return ToolResult(f"{tool} {args['item']}")

    async def reconcile(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> Reconciled:
        if context.effect_key in self.shared.done:
            return Reconciled("done", ToolResult(f"{tool} {args['item']}"))
        return Reconciled("not_done", rejects_used_key=True)


class SharedPack(BenchPack):
    """Each turn has ``calls`` commands on the one resource; tools that are settled after a death without a person."""

    name = "shared"

    def __init__(self, shared: Shared, calls: int, tenths_max: int) -> None:
        self.shared, self.calls, self.tenths_max = shared, calls, tenths_max

    def tools(self, agent: AgentSpec) -> Sequence[ToolSpec]:
        return [replace(tool, timeout_s=10.0) for tool in super().tools(agent)]

    def resource(self, tool: str, args: Mapping[str, Any]) -> str:
        del tool
        return str(args["item"])

    def rules(self, situation: Situation) -> StepDecision:
        if situation.steps:
            return StepDecision("done")
        chance = self.shared.chance
        calls = [
            ProposedCall(
                chance.choice(("set", "build")), {"item": ITEM, "count": chance.randint(1, self.tenths_max)}
            )
            for _ in range(self.calls)
        ]
        return StepDecision("", tuple(calls))

    async def connect(self, environment: PackEnvironment) -> SharedRuntime:
        sink = Sink(Path(environment.agent.config["directory"]))
        return SharedRuntime(sink, honour=True, shared=self.shared)


async def open_sessions(mesh: SimMesh, tmp_path: Path, pack: SharedPack, count: int) -> list[SessionRef]:
    registry.register(pack)
    Sink(tmp_path).set_world(at_ms=4_000_000_000_000)
    await mesh.open("observer", "planner", "executor", "executor")
    spec = bench_agent(tmp_path, pack=pack.name, heartbeat_s=36_000)
    return [await mesh.session(f"s{n}", spec) for n in range(count)]


def check(mesh: SimMesh, shared: Shared) -> None:
    """No two ran at once outside; and the journal has each outcome before the next first claim."""
    assert shared.overlaps == []
    assert list(overlaps(mesh.journal())) == []


def test_commands_of_two_sessions_run_one_at_a_time(tmp_path: Path) -> None:
    shared = Shared(random.Random(1))

    async def main() -> None:
        mesh = SimMesh(seed=1, debounce_p0_s=0)
        try:
            refs = await open_sessions(mesh, tmp_path, SharedPack(shared, calls=1, tenths_max=40), 2)
            for ref in refs:
                await mesh.until_rest(ref, 1, within_s=60)
            assert shared.tries == len(refs)
            check(mesh, shared)
        finally:
            await mesh.close()

    run_virtual(main(), 1)


def test_command_waits_for_the_repair_of_a_damaged_effect(tmp_path: Path) -> None:
    """The outcome of another session's effect cannot be read: nobody knows what it did until a person repairs it."""
    shared = Shared(random.Random(3))

    async def main() -> None:
        mesh = SimMesh(seed=3, debounce_p0_s=0, sweep_s=5)
        try:
            pack = SharedPack(shared, calls=1, tenths_max=1)
            (bad,) = await open_sessions(mesh, tmp_path, pack, 1)
            await mesh.until_rest(bad, 1)
            rot(mesh, last_of_kind(mesh, bad, Kind.OUTCOME))
            await restart_planner(mesh)
            await quarantined(mesh, bad)
            good = await mesh.session("good", bench_agent(tmp_path, pack=pack.name, heartbeat_s=36_000))
            await asyncio.sleep(60)
            assert shared.tries == 1
            assert (await mesh.anchor(good)).status == "active"
            await repairer(mesh, pack.name).carry_out(bad, await confirm(mesh, bad))
            await mesh.until_rest(good, 1)
            (refused,) = [each.outcome for each in mesh.history(good).outcomes]
            assert (refused.state, refused.rule, shared.tries) == ("refused", "resource_blocked", 1)
        finally:
            await mesh.close()

    run_virtual(main(), 3)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_thousand_commands_with_kills_run_one_at_a_time(tmp_path: Path) -> None:
    """Executors die every few seconds, at any moment; four sessions want the resource all the time."""
    shared, kills = Shared(random.Random(2)), 0

    async def main() -> None:
        nonlocal kills
        mesh = SimMesh(seed=2, debounce_p0_s=0)
        refs = await open_sessions(mesh, tmp_path, SharedPack(shared, calls=5, tenths_max=3), 4)

        async def kill() -> None:
            nonlocal kills
            while True:
                await asyncio.sleep(shared.chance.uniform(0.5, 6.0))
                victim = mesh.processes[f"executor-{shared.chance.choice((1, 2))}"]
                await victim.kill()
                kills += 1
                await asyncio.sleep(shared.chance.choice((0.0, 0.5)))
                await victim.start()

        killing = asyncio.create_task(kill())
        try:
            for ref in refs:
                # A message that arrives in a turn joins it, and would start no turn of its own.
                await mesh.until_rest(ref, 1, within_s=600)
            for run in range(2, 52):
                for ref in refs:
                    await mesh.say(ref, f"m{run}", kind="trigger")
                for ref in refs:
                    await mesh.until_rest(ref, run, within_s=600)
            check(mesh, shared)
        finally:
            killing.cancel()
            await mesh.close()

    run_virtual(main(), 2, time_limit_s=100_000)
    assert shared.tries >= 1_000
    assert kills >= 50
