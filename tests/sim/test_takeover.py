"""Two planners that hold one message: one goes on with the turn, and the other leaves both to it."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
import structlog
from anchorwatch.bus.port import ConsumerSpec
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.facts import Observation
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import EndTurn
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.wakes import Windows
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.paces import PaceJournal
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.packs import registry
from anchorwatch.service.context import Identity
from anchorwatch.service.journal_guard import JournalGuard
from anchorwatch.service.leases import Leases
from anchorwatch.testing.bus.loop import run as run_virtual
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.testing.process import LoopClock
from anchorwatch.topology.streams import journal_stream
from anchorwatch_planner.limits import Limits
from anchorwatch_planner.mailbox import FairSemaphore, Mailboxes
from anchorwatch_planner.sessions import StateCache
from anchorwatch_planner.step import StepRunner
from anchorwatch_planner.switches import KillSwitches
from anchorwatch_planner.takeover import Cause, LeftToHolder
from anchorwatch_planner.turn import Parts, PassResult, TurnEnded, TurnPlanner
from anchorwatch_planner.wakeups import WakeupTimers
from anchorwatch_planner.workers import WAKES, WakeWorker

from tests.sim.test_planner import agent, mesh_test, once
from tests.support.packs import BenchPack, bench_agent
from tests.support.services import make_context

FAR_MS = 10**13


class Alive:
    """Everybody lives."""

    async def alive(self, instance: str, incarnation: str) -> Literal["alive"]:
        del instance, incarnation
        return "alive"


class Slow(StepRunner):
    """Takes one step, which lasts until ``release`` is set and ends the turn."""

    def __init__(self, sessions: SessionJournal, me: str) -> None:
        self.thinking = asyncio.Event()
        self.release = asyncio.Event()
        self.seen: Observation | None = None
        self.turns: list[tuple[int, ...]] = []
        self._sessions = sessions
        self._me = me

    async def agent(self, ref: SessionRef, state: SessionState) -> AgentSpec:
        del ref, state
        return AgentSpec(name="bench", pack="bench", version=1)

    async def observe(self, ref: SessionRef, agent: str, state: SessionState) -> Observation:
        del ref, agent, state
        return Observation("quiet", {}, 0, "d", 60.0)

    async def step(
        self, ref: SessionRef, state: SessionState, seen: Observation | None = None
    ) -> SessionState:
        self.seen = seen
        self.turns.append(tuple(each.sequence for each in state.turn.inputs) if state.turn else ())
        self.thinking.set()
        await self.release.wait()
        end = EndTurn(self._me, "success", "", {}, FAR_MS, None, None, 0)
        return await self._sessions.append(ref, state, decide(state, end), 0)


async def is_active(mesh: SimMesh, ref: SessionRef) -> bool:
    return (await mesh.anchor(ref)).status == "active"


def planner(mesh: SimMesh, instance: str) -> tuple[TurnPlanner, Slow]:
    bus = mesh.server.connect(name=instance)
    identity = Identity("planner", instance, "a")
    committer = Committer(bus, journal_stream())
    sessions = SessionJournal(bus, committer, identity.execution_id)
    steps, clock = Slow(sessions, identity.execution_id), LoopClock(mesh.server)
    limits = Limits(mesh.settings, Windows(0, 0), steps.agent, PaceJournal(bus, committer.stream, "test"))
    log = structlog.get_logger()
    parts = Parts(
        bus=bus,
        sessions=sessions,
        committer=committer,
        cache=StateCache(8, identity.execution_id),
        timers=WakeupTimers(bus, clock),
        steps=steps,
        peers=Alive(),
        identity=identity,
        clock=clock,
        limits=limits,
        switches=KillSwitches(bus, clock, log),
        guard=JournalGuard(bus, committer.stream, clock, log),
        log=log,
    )
    return TurnPlanner(parts), steps


@pytest.mark.parametrize("attempts", [(1, 2), (2, 3)])
def test_replaced_planner_leaves_turn_and_message_to_new_owner(
    attempts: tuple[int, int], tmp_path: Path
) -> None:
    async def main() -> None:
        registry.register(BenchPack())
        mesh = SimMesh()
        await mesh.open()
        ref = await mesh.session("s", bench_agent(tmp_path))
        wake = await mesh.say(ref, "m")
        (one, slow), (two, slower) = planner(mesh, "planner-1"), planner(mesh, "planner-2")
        first = asyncio.create_task(one.plan(ref, [Cause("in", wake.sequence, attempts[0])]))
        await slow.thinking.wait()
        second = asyncio.create_task(two.plan(ref, [Cause("in", wake.sequence, attempts[1])]))
        await slower.thinking.wait()
        assert slow.seen is not None, "seen while the turn was acquired"
        assert slower.seen is None, "a takeover observes again"
        slow.release.set()
        left = await first
        assert isinstance(left, LeftToHolder)
        assert left.by == wake.sequence
        slower.release.set()
        assert await second == TurnEnded()
        kinds = [each["record"]["kind"] for each in await mesh.anchors(ref)]
        assert kinds == ["created", "acquired", "taken_over", "turn_ended"], "and it is not taken back"

    run_virtual(main())


def test_message_of_another_planner_is_not_acked_or_refetched(tmp_path: Path) -> None:
    async def main() -> None:
        registry.register(BenchPack())
        mesh = SimMesh()
        await mesh.open()
        ref = await mesh.session("s", bench_agent(tmp_path))
        held = await mesh.say(ref, "held")
        await mesh.say(ref, "other")
        spec = ConsumerSpec(journal_stream(), ("aw.journal.0.*.*.in.*",), "wakes", ack_wait_s=60.0)
        consumer = await mesh.bus.consumer(spec)
        planned = asyncio.Event()

        async def plan(_: SessionRef, causes: list[Cause]) -> PassResult:
            planned.set()
            assert len(causes) == 2
            return LeftToHolder(held.sequence, delay_s=None)

        slots, context = FairSemaphore(1, 1), make_context(mesh.bus, "planner")
        mailboxes = Mailboxes(plan, structlog.get_logger(), slots=slots, random=context.random)
        async with slots.of(ref.workspace):
            working = asyncio.create_task(WakeWorker(context, spec, mailboxes).run())
            await asyncio.sleep(1)
            assert (await consumer.state()).ack_pending == 2, "both wait for the pass"
        await planned.wait()
        await mailboxes.wait_for([ref], 1.0)
        context.stopping.set()
        await working
        assert (await consumer.state()).ack_pending == 1
        assert await consumer.fetch(1, 30.0) == [], "it was not asked for"
        [again] = await consumer.fetch(2, 40.0)
        assert again.stored.sequence == held.sequence, "its ack wait is over; the other was acked"

    run_virtual(main())


def test_turn_goes_on_at_its_owner_though_outcome_went_elsewhere(
    tmp_path: Path,
) -> None:
    """Its holder lives, so no other planner may go on; and what was to wake the holder will not come again."""

    async def body(mesh: SimMesh) -> None:
        await mesh.open()
        sweeper = Identity("planner", "another", "a")
        assert await Leases(mesh.bus, sweeper, 3600, monotonic=asyncio.get_running_loop().time).hold("sweep")
        await mesh.add("planner")
        ref = await mesh.session("s", agent(tmp_path, once("put"), heartbeat_s=3600))
        other = await mesh.bus.consumer(WAKES)
        await mesh.until(partial(is_active, mesh, ref))

        async def let_go() -> int:
            # First in line by now, since the planner asks anew every few seconds.
            [outcome] = await other.fetch(1, 600.0)
            await outcome.ack()
            return outcome.stored.sequence

        letting_go = asyncio.create_task(let_go())
        await asyncio.sleep(30)
        await mesh.add("executor")
        assert await letting_go == mesh.history(ref).outcomes[0].sequence
        assert (await mesh.until_rest(ref, 1, within_s=2 * mesh.settings.sweep_s)).generation == 1

    mesh_test(1, body)
