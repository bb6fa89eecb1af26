"""What a planner reads of the journal: no more than it must, and never less."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import structlog
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session.state import Archive, Call, PastTurn, Step, Unsettled
from anchorwatch.core.session.wakes import Windows
from anchorwatch.models.port import Situation, StepDecision
from anchorwatch.packs import registry
from anchorwatch.service.worker import Done
from anchorwatch.testing.bus.loop import run as run_virtual
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.testing.process import LoopClock
from anchorwatch.topology.streams import journal_stream
from anchorwatch_planner.mailbox import LINGER_S, Answer, FairSemaphore, Mailboxes
from anchorwatch_planner.sessions import Assumed, SessionReader, StateCache
from anchorwatch_planner.takeover import Cause
from anchorwatch_planner.turn import PassResult, TurnEnded

from tests.sim.test_planner import agent, mesh_test, obedient, once
from tests.sim.test_takeover import planner
from tests.support.packs import BenchPack, bench_agent

QUIET: dict[str, float] = {"debounce_p0_s": 0, "debounce_p1_s": 0, "sweep_s": 3600}


def test_turn_of_one_call_reads_the_journal_twice(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", ("executor", obedient))
        ref = await mesh.session("s", agent(tmp_path, once("set"), heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        await asyncio.sleep(1)
        lines: list[str] = []
        mesh.server.trace_lines = lines
        await mesh.say(ref, "one", kind="event", priority=1)
        await mesh.until_rest(ref, 2)
        await asyncio.sleep(1)
        mine = [line for line in lines if "planner-1#1" in line]
        # When it was woken, and at rest again. The outcome of its call came to it by itself.
        assert sum("DIRECT.GET.JOURNAL" in line for line in mine) == 2

    mesh_test(1, body, **QUIET)


@pytest.mark.parametrize("seed", range(10))
def test_input_during_a_turn_is_taken_by_the_next(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        seen: list[int] = []

        def rules(situation: Situation) -> StepDecision:
            if not situation.steps:
                seen.append(len(situation.wakes))
            return once("set")(situation)

        # Two planners, so that the one that runs the turn is often not the one that is told of the input.
        await mesh.open("planner", "planner", ("executor", obedient))
        ref = await mesh.session("s", agent(tmp_path, rules, heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        seen.clear()
        for number in range(12):
            await mesh.say(ref, f"e{number}", kind="event", priority=1)
            await asyncio.sleep(mesh.server.latency() * 3)
        await asyncio.sleep(30)
        anchor = await mesh.anchor(ref)
        assert (anchor.status, sum(seen)) == ("idle", 12), "each input is in exactly one turn"

    mesh_test(seed, body, **QUIET)


def test_consecutive_turns_read_only_the_inputs(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", ("executor", obedient))
        ref = await mesh.session("s", agent(tmp_path, once("set"), heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        lines: list[str] = []
        mesh.server.trace_lines = lines
        for run in range(2, 7):
            await mesh.say(ref, f"e{run}", kind="event", priority=1)
            await mesh.until_rest(ref, run)
        mine = [line for line in lines if "planner-1#1" in line]
        # What stands behind the end of a turn is read with the message that begins the next.
        assert sum("DIRECT.GET.JOURNAL" in line for line in mine) == 5

    mesh_test(1, body, **QUIET)


def outside(body: Callable[[SimMesh, SessionRef], Awaitable[None]], path: Path) -> None:
    """Without services: the test is all that is told of anything."""

    async def main() -> None:
        registry.register(BenchPack())
        mesh = SimMesh()
        await mesh.open()
        await body(mesh, await mesh.session("s", bench_agent(path)))

    run_virtual(main())


async def accept_cause(mesh: SimMesh, ref: SessionRef, what: str) -> Cause:
    """An input, and its message as it comes to a planner."""
    sequence = (await mesh.say(ref, what)).sequence
    return Cause("in", sequence, 1, mesh.server.stream(journal_stream()).messages[sequence])


def test_turn_takes_all_inputs_up_to_the_current_message(tmp_path: Path) -> None:
    async def body(mesh: SimMesh, ref: SessionRef) -> None:
        turns, steps = planner(mesh, "planner-1")
        steps.release.set()
        first = await accept_cause(mesh, ref, "first")
        assert await turns.plan(ref, [first]) == TurnEnded()
        later = [await accept_cause(mesh, ref, f"m{number}") for number in range(5)]
        # Of these it hears of the last alone: the others went to another planner, which saw the session run.
        assert await turns.plan(ref, [first.after_turn(), later[-1]]) == TurnEnded()
        assert steps.turns == [(first.sequence,), tuple(each.sequence for each in later)]

    outside(body, tmp_path)


def test_foreign_records_below_the_current_message_are_seen(tmp_path: Path) -> None:
    async def body(mesh: SimMesh, ref: SessionRef) -> None:
        (one, slow), (two, slower) = planner(mesh, "planner-1"), planner(mesh, "planner-2")
        slow.release.set()
        slower.release.set()
        assert await one.plan(ref, [await accept_cause(mesh, ref, "first")]) == TurnEnded()
        assert await two.plan(ref, [await accept_cause(mesh, ref, "second")]) == TurnEnded()
        third = await accept_cause(mesh, ref, "third")
        assert await one.plan(ref, [third]) == TurnEnded()
        assert slow.turns[1:] == [(third.sequence,)], "the second was taken by the other's turn"
        await mesh.control(ref, Kind.PAUSED, "pause")
        assert await one.plan(ref, [await accept_cause(mesh, ref, "fourth")]) == Done()
        anchor = await mesh.anchor(ref)
        assert (anchor.status, anchor.run_id, len(slow.turns)) == ("paused", 3, 2)

    outside(body, tmp_path)


CALL = Call(1, "set", {}, state="succeeded")


def past(call: Call) -> PastTurn:
    return PastTurn(1, "success", "", (), 0, (Step(1, "", (call,)),))


@pytest.mark.parametrize(
    ("more", "assumed"),
    [
        ({"history": (past(CALL),)}, True),
        ({"history": (past(replace(CALL, state="unknown")),)}, False),
        ({"history": (past(replace(CALL, state="pending")),)}, False),
        ({"archives": (Archive(1, None, (past(replace(CALL, state="unknown")),)),)}, False),
        ({"unsettled": (Unsettled(CallId(1, 1, 1), "default", "job"),)}, False),
    ],
)
def test_session_is_read_whole_where_an_outcome_may_still_come(
    tmp_path: Path, more: dict[str, object], *, assumed: bool
) -> None:
    async def body(mesh: SimMesh, ref: SessionRef) -> None:
        cache, clock = StateCache(8, "me:a"), LoopClock(mesh.server)
        reader = SessionReader(mesh.sessions, cache, "me:a", clock, Windows(0, 0))
        state = (await mesh.sessions.load(ref, 0))._replace(**more)  # type: ignore[arg-type]
        cache.put(ref, state)
        cause = await accept_cause(mesh, ref, "m")
        found = await reader.open(ref, [cause])
        assert isinstance(found, Assumed) == assumed
        if isinstance(found, Assumed):
            assert [each.sequence for each in found.state.pending] == [cause.sequence]
            assert (found.state.read_through, cache.get(ref)) == (cause.sequence, state), (
                "it is not proved yet"
            )

    outside(body, tmp_path)


def test_turn_messages_stay_pending_until_its_end_is_checked(tmp_path: Path) -> None:
    async def body(mesh: SimMesh, ref: SessionRef) -> None:
        passes: list[list[Cause]] = []

        async def plan(_: SessionRef, causes: list[Cause]) -> PassResult:
            passes.append(causes)
            return TurnEnded() if len(passes) < 3 else Done()

        async def left() -> int:
            await asyncio.sleep(LINGER_S / 4)
            return sum(not each.done() for each in in_hand)

        random = Random(0)
        mailboxes = Mailboxes(plan, structlog.get_logger(), slots=FairSemaphore(1, 1), random=random)
        sequences, in_hand = [], list[asyncio.Task[Answer]]()
        for number in range(2):
            cause = await accept_cause(mesh, ref, f"m{number}")
            sequences.append(cause.sequence)
            in_hand.append(asyncio.create_task(mailboxes.handle(ref, cause)))
            assert await left() == 1, "of the turn before, this look has seen to"
        await asyncio.sleep(LINGER_S)
        assert await left() == 0
        assert all(each.result() == Done() for each in in_hand)
        one, two = ([(each.sequence, each.handled) for each in causes] for causes in passes[1:])
        assert one == [(sequences[0], True), (sequences[1], False)]
        assert two == [(sequences[1], True)]
        assert all(each.stored is None for causes in passes for each in causes if each.handled)

    outside(body, tmp_path)
