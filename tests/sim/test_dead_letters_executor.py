"""A command that cannot be handled gets its definite end: its turn goes on, and people are shown why."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.codec import decode
from anchorwatch.core.effect.state import Outcome
from anchorwatch.edges import Edge
from anchorwatch.journal.effect_mapping import read_outcome
from anchorwatch.packs import registry
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.testing.process import Life
from anchorwatch.topology.subjects import OUTCOMES

from tests.support.letters import PoisonPack, in_state, mesh_test, only_letter, order
from tests.support.packs import Sink, bench_agent
from tests.support.sessions import ScriptedSession


async def outcomes(mesh: SimMesh, ref: Any) -> list[Outcome]:
    return [
        read_outcome(decode(payload).body)
        for _, subject, payload in await mesh.records(ref)
        if subject.split(".")[-1] in OUTCOMES
    ]


def agent(tmp_path: Path, pack: PoisonPack, **changes: Any) -> Any:
    registry.register(pack)
    return bench_agent(tmp_path, pack=pack.name, heartbeat_s=3600, **changes)


def test_unhandleable_command_is_refused_and_its_turn_goes_on(tmp_path: Path) -> None:
    pack = PoisonPack()
    pack.broken = True

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor")
        ref = await mesh.session("s", agent(tmp_path, pack))
        await mesh.until(in_state(mesh.bus, "failing"), within_s=10)
        assert (await mesh.anchor(ref)).status == "active", "it waits while there is hope"
        anchor = await mesh.until_rest(ref, 1, within_s=300)
        assert anchor.run_count == 1
        (done,) = await outcomes(mesh, ref)
        assert (done.state, done.rule) == ("refused", "dead_letter")
        assert "this pack cannot connect" in done.text
        letter = await only_letter(mesh.bus)
        assert letter is not None
        assert (letter.state, letter.tries, letter.address.session) == ("open", 8, "s")
        assert letter.address.letter_id == "executor-s-1-1-1"
        assert Sink(tmp_path).effects() == []

    mesh_test(body)


@pytest.mark.slow
@pytest.mark.parametrize("edge", [Edge.EXECUTOR_OUTCOME_BEFORE, Edge.EXECUTOR_LETTER_BEFORE], ids=str)
def test_abandoned_command_ends_though_abandoning_fails_at_first(tmp_path: Path, edge: Edge) -> None:
    pack = PoisonPack()
    pack.broken = True

    def fail(_: Life) -> None:
        raise ZeroDivisionError("a fault of giving up")

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor")
        for reach in (1, 2):
            mesh.watch.plan(edge, reach, fail)
        ref = await mesh.session("s", agent(tmp_path, pack))
        await mesh.until_rest(ref, 1, within_s=300)
        (done,) = await outcomes(mesh, ref)
        assert (done.state, done.rule) == ("refused", "dead_letter")
        assert mesh.crashes == []

    mesh_test(body)


def test_retried_refused_command_is_decided_again_and_done_once(tmp_path: Path) -> None:
    pack = PoisonPack()
    pack.broken = True

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor")
        ref = await mesh.session("s", agent(tmp_path, pack))
        await mesh.until_rest(ref, 1, within_s=300)
        pack.broken = False
        letter = await only_letter(mesh.bus)
        assert letter is not None
        for _ in range(3):
            await order(mesh.bus, letter, "retry", mesh.server.now_ms(), "one key")
        await mesh.until_rest(ref, 2, within_s=30)
        assert await in_state(mesh.bus, "done")()
        await asyncio.sleep(60)
        states = [each.state for each in await outcomes(mesh, ref)]
        assert states == ["refused", *["succeeded"] * (len(states) - 1)]
        assert Sink(tmp_path).effects("r1") == []
        assert len(Sink(tmp_path).effects()) == len(states) - 1
        (asked,) = [
            decode(payload).body
            for _, subject, payload in await mesh.records(ref)
            if subject.startswith("in.dl-")
        ]
        assert (asked["kind"], asked["by"]) == ("trigger", "a person")

    mesh_test(body)


def test_claimed_command_that_cannot_be_handled_is_unknown(tmp_path: Path) -> None:
    """It was begun, its executor died, and nobody who is left can connect to find out."""
    pack = PoisonPack()
    hanging = asyncio.Event()

    async def hang() -> None:
        hanging.set()
        await asyncio.sleep(3600)

    pack.deadly = hang

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor")
        ref = await mesh.session("s", agent(tmp_path, pack))
        executor = mesh.processes["executor-1"]
        await asyncio.wait_for(hanging.wait(), 30)
        await executor.kill()
        pack.broken = True
        await executor.start()
        await mesh.until_rest(ref, 1, within_s=300)
        (done,) = await outcomes(mesh, ref)
        assert (done.state, done.error) == ("unknown", "dead_letter")

    mesh_test(body)


def test_dropped_letter_ends_its_command_without_a_retry(tmp_path: Path) -> None:
    pack = PoisonPack()
    pack.broken = True

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor")
        ref = await mesh.session("s", agent(tmp_path, pack))
        await mesh.until(in_state(mesh.bus, "failing"), within_s=10)
        letter = await only_letter(mesh.bus)
        assert letter is not None
        await order(mesh.bus, letter, "drop", mesh.server.now_ms())
        pack.broken = False
        await mesh.until_rest(ref, 1, within_s=10)
        (done,) = await outcomes(mesh, ref)
        assert (done.state, done.rule) == ("refused", "dead_letter")
        await asyncio.sleep(120)
        assert Sink(tmp_path).effects("r1") == []
        assert await in_state(mesh.bus, "dropped")()

    mesh_test(body)


@pytest.mark.parametrize("seed", range(2))
def test_tool_that_ends_its_process_is_identified(tmp_path: Path, seed: int) -> None:
    """A read is run again after each death, since that does no harm outside."""
    pack = PoisonPack("look")
    deaths: list[asyncio.Task[None]] = []

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor")
        executor = mesh.processes["executor-1"]

        async def deadly() -> None:
            deaths.append(asyncio.create_task(executor.kill()))
            await asyncio.sleep(3600)

        pack.deadly = deadly
        ref = await mesh.session("s", agent(tmp_path, pack))

        async def ended() -> bool:
            if not executor.running:
                await executor.start()
            return (await mesh.anchor(ref)).run_count == 1

        await mesh.until(ended, within_s=600)
        (done,) = await outcomes(mesh, ref)
        assert (done.state, done.rule) == ("refused", "dead_letter")
        letter = await only_letter(mesh.bus)
        assert letter is not None
        assert (letter.state, letter.fault.code) == ("open", "crashed")
        assert len(deaths) >= 8

    mesh_test(body, seed)


def test_poisonous_command_lets_a_thousand_later_ones_pass(tmp_path: Path) -> None:
    pack = PoisonPack()
    pack.broken = True

    async def body(mesh: SimMesh) -> None:
        await mesh.open("executor")
        await mesh.session("bad", agent(tmp_path / "bad", pack, name="bad"))
        await mesh.session("good", bench_agent(tmp_path, heartbeat_s=3600))
        bad = ScriptedSession(mesh.bus, "bad")
        await bad.acquire(agent="bad@1")
        await bad.command("look")
        good = [ScriptedSession(mesh.bus, f"good-{n}") for n in range(10)]
        for session in good:
            await session.create()
            await session.acquire()
            await session.commands(*(("look", {"item": f"i{n}"}) for n in range(100)))

        async def all_done() -> bool:
            done = [each.state for session in good for each in await outcomes(mesh, session.ref)]
            return done == ["succeeded"] * 1_000

        await mesh.until(all_done, within_s=100)
        assert await in_state(mesh.bus, "failing")() or await in_state(mesh.bus, "open")()

    mesh_test(body)
