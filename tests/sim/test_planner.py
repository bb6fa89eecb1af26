"""The planner's real code on the bus in memory: wakes, takeover, schedules. The executor here is a few lines that do as told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.bus.port import ConsumerSpec, Message
from anchorwatch.codec import decode
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.effect.state import EffectState, Outcome
from anchorwatch.core.errors import NotFound
from anchorwatch.core.records import Kind
from anchorwatch.core.session.commands import Control
from anchorwatch.core.session.decide import decide
from anchorwatch.core.tools import ToolSpec
from anchorwatch.journal.effects import EffectJournal
from anchorwatch.journal.mapping import read_command
from anchorwatch.models.port import ProposedCall, Situation, StepDecision
from anchorwatch.packs import registry
from anchorwatch.service.context import ServiceContext
from anchorwatch.testing.bus.loop import run as run_virtual
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import SessionSubjects, parse_register
from anchorwatch_planner.workers import WAKES

from tests.support.packs import BenchPack, bench_agent

Decide = Callable[[Situation], StepDecision]


class RulesPack(BenchPack):
    """The bench, with rules that the test gives."""

    name = "rules"

    def __init__(self, rules: Decide) -> None:
        self._rules = rules

    def rules(self, situation: Situation) -> StepDecision:
        return self._rules(situation)


def once(*tools: str) -> Decide:
    """Ask for these calls in the first step, and end the turn in the second."""

    def rules(situation: Situation) -> StepDecision:
        if situation.steps:
            return StepDecision("done")
        return StepDecision("", tuple(ProposedCall(tool, {"item": f"i{n}"}) for n, tool in enumerate(tools)))

    return rules


async def obedient(context: ServiceContext) -> None:
    """An executor that says of every command that it succeeded."""
    committer = context.committer
    effects = EffectJournal(context.bus, committer, context.identity.execution_id)
    spec = ConsumerSpec(
        journal_stream(), ("aw.journal.0.*.*.p.cmd.default",), "executor-default", ack_wait_s=2.0
    )
    consumer = await context.bus.consumer(spec)
    context.ready.set()
    while True:
        for delivery in await consumer.fetch(8, 1.0):
            register = parse_register(delivery.stored.subject)
            command = read_command(register.pool, decode(delivery.stored.payload).body)
            state = await effects.load(register.ref, register.pool, command.call, delivery.stored.sequence)
            if state == EffectState():
                done = Outcome(command.call, command.tool, "succeeded", "ok", {}, turn_id=command.turn_id)
                await effects.append(
                    register.ref, register.pool, command.call, state, done, context.clock.now_ms()
                )
            await delivery.ack()


def mesh_test(seed: int, body: Callable[[SimMesh], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def main() -> None:
        mesh = SimMesh(seed=seed, **settings)
        try:
            await body(mesh)
        finally:
            await mesh.close()

    run_virtual(main(), seed)


def agent(tmp_path: Path, rules: Decide, **changes: Any) -> Any:
    registry.register(RulesPack(rules))
    return bench_agent(tmp_path, pack="rules", **changes)


async def ended(mesh: SimMesh, ref: Any, runs: int) -> Callable[[], Awaitable[bool]]:
    async def condition() -> bool:
        return (await mesh.anchor(ref)).run_count >= runs

    return condition


@pytest.mark.parametrize("seed", range(5))
def test_new_session_runs_at_once_and_then_at_its_heartbeat(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", ("executor", obedient))
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=30))
        started_ms = mesh.server.now_ms()
        first = await mesh.until_rest(ref, 1, within_s=5)
        assert (first.run_id, first.generation, first.last_run_outcome) == (1, 1, "no_action")
        await mesh.until_rest(ref, 4, within_s=100)
        passed_s = (mesh.server.now_ms() - started_ms) / 1000
        assert 90 <= passed_s <= 92, "three heartbeats of 30 s"
        ticks = [subject for _, subject, _ in await mesh.records(ref) if subject.startswith("in.")]
        assert len(ticks) == 4, "one wake a check"

    mesh_test(seed, body)


@pytest.mark.parametrize("seed", range(5))
def test_burst_is_one_turn_that_takes_all_of_it(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        seen: list[int] = []

        def rules(situation: Situation) -> StepDecision:
            seen.append(len(situation.wakes))
            return StepDecision("looked")

        await mesh.open("planner")
        ref = await mesh.session("s", agent(tmp_path, rules, heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        seen.clear()
        await asyncio.gather(*(mesh.say(ref, f"e{n}", kind="event", priority=1) for n in range(300)))
        await mesh.until_rest(ref, 2, within_s=30)
        await asyncio.sleep(60)
        anchor = await mesh.anchor(ref)
        assert anchor.run_count == 2
        assert sum(seen) == 301, "300 events and the tick that said that their window is over"

    mesh_test(seed, body)


@pytest.mark.parametrize("seed", range(10))
def test_turn_steps_are_decided_once_though_two_planners_share(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "planner", ("executor", obedient), ("executor", obedient))
        ref = await mesh.session("s", agent(tmp_path, once("fire", "fire", "fire"), heartbeat_s=3600))
        anchor = await mesh.until_rest(ref, 1)
        assert anchor.last_run_outcome == "success"
        for n in range(2, 6):
            await mesh.say(ref, f"m{n}")
            await mesh.until_rest(ref, n)
        records = await mesh.records(ref)
        commands = [decode(payload).body for _, subject, payload in records if subject.startswith("p.cmd.")]
        assert [(each["run"], each["step"], each["n"]) for each in commands] == [
            (run, 1, n) for run in range(1, 6) for n in range(1, 4)
        ]
        acquired = [
            each["run_id"] for each in await mesh.anchors(ref) if each["record"]["kind"] == Kind.ACQUIRED
        ]
        assert acquired == [1, 2, 3, 4, 5]
        generations = [each["generation"] for each in await mesh.anchors(ref)]
        assert generations == sorted(generations)

    mesh_test(seed, body)


@pytest.mark.parametrize("seed", range(20))
def test_planner_killed_at_any_moment_loses_no_wake_or_step(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", ("executor", obedient))
        ref = await mesh.session("s", agent(tmp_path, once("fire", "fire"), heartbeat_s=3600))
        planner = mesh.processes["planner-1"]
        for n in range(8):
            await mesh.say(ref, f"m{n}", kind="trigger")
            await asyncio.sleep(0.0005 * ((seed * 7 + n * 3) % 40))
            await planner.kill()
            await planner.start()
        await mesh.until(await ended(mesh, ref, 1))
        await asyncio.sleep(30)
        anchor = await mesh.until_rest(ref, 1)
        state = await mesh.sessions.load(ref, 0)
        assert state.pending == ()
        assert anchor.run_count == anchor.run_id
        commands = [subject for _, subject, _ in await mesh.records(ref) if subject.startswith("p.cmd.")]
        assert len(commands) == 2 * anchor.run_count, "each turn decided its two calls once"

    mesh_test(seed, body)


def test_turn_of_a_dead_planner_is_taken_over_by_another(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", ("executor", obedient))
        ref = await mesh.session("s", agent(tmp_path, once("fire"), heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        executor = mesh.processes["executor-1"]
        await executor.kill()
        await mesh.say(ref, "m")

        async def commanded() -> bool:
            return sum(subject.startswith("p.cmd") for _, subject, _ in await mesh.records(ref)) == 2

        await mesh.until(commanded)
        await mesh.processes["planner-1"].kill()
        await mesh.add("planner")
        await executor.start()
        anchor = await mesh.until_rest(ref, 2)
        assert (anchor.run_id, anchor.generation) == (2, 3)
        kinds = [each["record"]["kind"] for each in await mesh.anchors(ref)]
        assert kinds[-3:] == [Kind.ACQUIRED, Kind.TAKEN_OVER, Kind.TURN_ENDED]

    mesh_test(1, body)


def test_paused_session_keeps_its_inputs_until_resumed(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", ("executor", obedient))
        ref = await mesh.session("s", agent(tmp_path, once("fire"), heartbeat_s=3600))
        await mesh.until_rest(ref, 1)

        async def order(kind: Kind) -> None:
            state = await mesh.sessions.load(ref, 0)
            now_ms = mesh.server.now_ms()
            await mesh.sessions.append(ref, state, decide(state, Control(kind, "person", now_ms)), now_ms)

        await order(Kind.PAUSED)
        await mesh.say(ref, "m")
        await asyncio.sleep(60)
        assert (await mesh.anchor(ref)).run_count == 1
        await order(Kind.RESUMED)
        await mesh.until_rest(ref, 2, within_s=10)

    mesh_test(3, body)


def test_bus_outage_delays_and_loses_nothing(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", ("executor", obedient))
        ref = await mesh.session("s", agent(tmp_path, once("fire"), heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        for n in range(2, 5):
            await mesh.say(ref, f"m{n}")
            await asyncio.sleep(1.99 + 0.01 * n)
            mesh.server.stop()
            await asyncio.sleep(3)
            mesh.server.start()
            await mesh.until_rest(ref, n)

    mesh_test(5, body)


@pytest.mark.slow
def test_pack_error_of_any_type_ends_the_turn_and_holds_nothing(tmp_path: Path) -> None:
    def broken(situation: Situation) -> StepDecision:
        raise ZeroDivisionError(str(situation.run_id))

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        ref = await mesh.session("s", agent(tmp_path, broken, heartbeat_s=3600))
        anchor = await mesh.until_rest(ref, 1)
        assert anchor.last_run_outcome == "failed"
        assert "ZeroDivisionError" in anchor.last_run_reason
        again = await mesh.until_rest(ref, 3, within_s=60)
        assert again.runs_without_progress == 3

    mesh_test(7, body)


def test_damaged_session_delays_no_other(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", ("executor", obedient))
        spec = agent(tmp_path, once("fire"), heartbeat_s=3600)
        bad, good = await mesh.session("bad", spec), await mesh.session("good", spec)
        await mesh.until_rest(bad, 1)
        await mesh.until_rest(good, 1)
        await mesh.bus.publish(Message(SessionSubjects(bad).log, b"noise"))
        for n in range(1_200):
            await mesh.say(bad, f"b{n}", kind="trigger")
        await mesh.say(good, "g", kind="trigger")
        await mesh.until_rest(good, 2, within_s=10)
        assert (await mesh.anchor(bad)).run_count == 1

    mesh_test(9, body)


class MissingPack(RulesPack):
    """A pack that whoever runs it cannot load while ``missing``."""

    name = "missing"
    missing = False

    def tools(self, agent: AgentSpec) -> Sequence[ToolSpec]:
        if self.missing:
            raise NotFound("unknown pack 'missing'")
        return super().tools(agent)


def test_session_that_cannot_run_delays_no_other_and_runs_later(tmp_path: Path) -> None:
    pack = MissingPack(once("fire"))
    registry.register(pack)

    async def body(mesh: SimMesh) -> None:
        await mesh.open(("executor", obedient))
        good = await mesh.session("good", agent(tmp_path, once("fire"), heartbeat_s=3600))
        bad = await mesh.session("bad", bench_agent(tmp_path, name="other", pack="missing", heartbeat_s=3600))
        pack.missing = True
        await mesh.add("planner")
        await mesh.until_rest(good, 1)
        for n in range(2_000):
            last = await mesh.say(bad, f"b{n}", kind="trigger")
            # Slower than a look that fails at once, so that each would be in hand by itself.
            await asyncio.sleep(0.01)
        await mesh.say(good, "g", kind="trigger")
        await mesh.until_rest(good, 2, within_s=10)
        state = await (await mesh.bus.consumer(WAKES)).state()
        assert state.ack_pending <= 64
        pack.missing = False
        assert (await mesh.until_rest(bad, 1)).inputs_through >= last.sequence

    mesh_test(10, body)
