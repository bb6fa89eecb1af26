"""A journal that its server cut off: who notices, what is held, and what an acceptance makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from anchorwatch.core.errors import ChangedSince, Refused
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.integrity.accept import Acceptance
from anchorwatch.journal.integrity.repair import Order
from anchorwatch.journal.integrity.verify import verify
from anchorwatch.journal.truncation import LostRecord, Proof, check_end, hold_mesh, standing_hold
from anchorwatch.service.context import ServiceContext
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import FILLER
from anchorwatch_memory.main import run_on
from anchorwatch_memory.projections import InlineProjections

from tests.sim.test_effects_by_death import FRESH_MS, outcomes, rules
from tests.sim.test_planner import agent, mesh_test
from tests.sim.test_quarantine import SETTINGS, records_of
from tests.sim.test_repair import repairer
from tests.support.packs import Sink

STREAM = journal_stream()
STILL_S = 120
ANCHOR = ".p.anchor."
SERVICES = ("observer", "planner", "executor", "notifier")


def memory(path: Path) -> tuple[str, Callable[[ServiceContext], Awaitable[None]]]:
    """The memory service on a file that outlives its process."""
    return "memory", lambda context: run_on(context, InlineProjections(path))


async def done(mesh: SimMesh, tmp_path: Path, tool: str, *more: tuple[str, object]) -> SessionRef:
    """A session whose first turn has called a tool, with its outcome recorded, and all at rest."""
    Sink(tmp_path).set_world(at_ms=FRESH_MS)
    await mesh.open(*SERVICES, *more)  # type: ignore[arg-type]
    ref = await mesh.session("s", agent(tmp_path, rules(tool, "ok"), heartbeat_s=3600))

    async def ended() -> bool:
        anchor = await mesh.anchor(ref)
        return anchor.run_count == 1 and anchor.status == "idle"

    await mesh.until(ended, within_s=120)
    await asyncio.sleep(5)
    return ref


def cut_at(mesh: SimMesh, ref: SessionRef, register: str) -> tuple[int, int]:
    """Cut the journal off before the first record of a register but the session's own; the last sequence before and after."""
    first = [each for each in records_of(mesh, ref) if register in each.subject][register == ANCHOR]
    store = mesh.server.stream(STREAM)
    before = store.last_sequence
    store.truncate(first.sequence - 1)
    return before, store.last_sequence


async def kill_all(mesh: SimMesh) -> None:
    for process in mesh.processes.values():
        await process.kill()


async def start_all(mesh: SimMesh) -> None:
    for process in mesh.processes.values():
        await process.start()


def acceptance(mesh: SimMesh) -> Acceptance:
    return Acceptance(mesh.bus, mesh.committer, repairer(mesh), "outside")


async def confirmed(mesh: SimMesh) -> Order:
    shown = await acceptance(mesh).show()
    return Order(shown.hold.digest, "ann", "the disk was replaced", mesh.server.now_ms())


@pytest.mark.parametrize("tool", ["fire", "build", "set"])
@pytest.mark.parametrize("lost_from", [ANCHOR, ".claim", ".done"])
def test_memory_holds_the_mesh_before_an_effect_runs_again(tmp_path: Path, tool: str, lost_from: str) -> None:
    async def body(mesh: SimMesh) -> None:
        ref = await done(mesh, tmp_path, tool, memory(tmp_path / "memory.db"))
        assert len(Sink(tmp_path).effects("x")) == 1
        await kill_all(mesh)
        before, last = cut_at(mesh, ref, lost_from)
        await start_all(mesh)
        await asyncio.sleep(STILL_S)
        hold = await standing_hold(mesh.bus, STREAM)
        [gap] = hold.gaps
        assert (hold.on, gap.first, gap.through) == (True, last + 1, before)
        assert (last + 1, before) in await mesh.bus.holes(STREAM)
        assert len(Sink(tmp_path).effects("x")) == 1
        accepted = await acceptance(mesh).accept(await confirmed(mesh), 60)
        assert (accepted.left, accepted.replayed) == (0, False)
        await asyncio.sleep(STILL_S)
        assert len(Sink(tmp_path).effects("x")) == 1
        states = await outcomes(mesh, ref)
        # Where its claim is there, the provider of a reconcilable one may still be asked: it says that it was done.
        assert states[-1] in (
            ("unknown", "succeeded") if tool == "build" and lost_from == ".done" else ("unknown",)
        )
        examination = await verify(mesh.bus, STREAM, mesh.sessions, ref)
        assert (examination.open, examination.unloadable) == ([], "")

    mesh_test(1, body, **SETTINGS)


def test_running_service_halts_the_mesh_after_a_reconnect(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        ref = await done(mesh, tmp_path, "fire")
        for process in mesh.processes.values():
            process.cut()
        before, last = cut_at(mesh, ref, ANCHOR)
        for process in mesh.processes.values():
            process.reconnect()
        await mesh.say(ref, "more", "are you there?")
        await asyncio.sleep(STILL_S)
        hold = await standing_hold(mesh.bus, STREAM)
        assert hold.on
        assert hold.gaps[0].through >= before > last
        assert len(Sink(tmp_path).effects("x")) == 1

    mesh_test(1, body, **SETTINGS)


def test_witnesses_make_one_gap(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        ref = await done(mesh, tmp_path, "fire")
        await kill_all(mesh)
        before, last = cut_at(mesh, ref, ".claim")
        proofs = [Proof(before, f"w{n}") for n in range(4)]
        gaps = await asyncio.gather(*(hold_mesh(mesh.bus, STREAM, proof, proof.found_by) for proof in proofs))
        [gap] = [each for each in gaps if each is not None]
        assert (gap.first, gap.through) == (last + 1, before)
        assert await mesh.bus.holes(STREAM) == [(last + 1, before)]
        assert not await mesh.bus.counts(STREAM, FILLER)
        receipt = await mesh.say(ref, "next")
        assert receipt.sequence == before + 2
        assert await check_end(mesh.bus, STREAM) is None

    mesh_test(1, body, **SETTINGS)


def test_second_loss_is_accepted_with_the_first(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        ref = await done(mesh, tmp_path, "fire")
        await kill_all(mesh)
        before, _ = cut_at(mesh, ref, ".claim")
        await hold_mesh(mesh.bus, STREAM, Proof(before, "w"), "w")
        order = await confirmed(mesh)
        store = mesh.server.stream(STREAM)
        held = store.last_sequence
        store.truncate(held)
        await hold_mesh(mesh.bus, STREAM, Proof(held + 7, "w"), "w")
        with pytest.raises(ChangedSince):
            await acceptance(mesh).accept(order, 60)
        assert len((await standing_hold(mesh.bus, STREAM)).gaps) == 2
        await acceptance(mesh).accept(await confirmed(mesh), 60)
        assert not (await standing_hold(mesh.bus, STREAM)).on

    mesh_test(1, body, **SETTINGS)


def test_acceptance_is_one_order_and_resumes_where_it_ended(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        ref = await done(mesh, tmp_path, "fire")
        await mesh.session("t", agent(tmp_path, rules("fire", "ok"), heartbeat_s=3600, name="other"))
        await asyncio.sleep(30)
        await kill_all(mesh)
        store = mesh.server.stream(STREAM)
        before, last = store.last_sequence, store.last_sequence - 2
        store.truncate(last)
        await hold_mesh(mesh.bus, STREAM, Proof(before, "w"), "w")
        order = await confirmed(mesh)
        part = await acceptance(mesh).accept(order, -1)
        assert (part.left, part.sequence) == (1, 0)
        assert (await standing_hold(mesh.bus, STREAM)).on
        whole = await acceptance(mesh).accept(order, 60)
        again = await acceptance(mesh).accept(order, 60)
        assert (whole.left, whole.replayed) == (0, False)
        assert (again.sequence, again.replayed, again.by) == (whole.sequence, True, "ann")
        repaired = [each for each in records_of(mesh, ref) if b'"repaired"' in each.payload]
        assert len(repaired) == 1
        with pytest.raises(Refused):
            await acceptance(mesh).accept(Order("0" * 64, "ann", "", 0), 60)

    mesh_test(1, body, **SETTINGS)


def test_session_that_lost_nothing_is_not_named(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        ref = await done(mesh, tmp_path, "fire")
        other = await mesh.session("t", agent(tmp_path, rules("look", "ok"), heartbeat_s=3600, name="other"))
        await asyncio.sleep(30)
        await kill_all(mesh)
        lost = await mesh.say(ref, "lost")
        store = mesh.server.stream(STREAM)
        [stored] = [each for each in records_of(mesh, ref) if each.sequence == lost.sequence]
        store.truncate(lost.sequence - 1)
        known = LostRecord(lost.sequence, stored.subject)
        await hold_mesh(mesh.bus, STREAM, Proof(lost.sequence, "w", [known]), "w")
        shown = await acceptance(mesh).show()
        assert shown.concerned == [ref]
        assert [each.trouble for each in (await verify(mesh.bus, STREAM, mesh.sessions, ref)).open] == [
            "lost"
        ]
        assert (await verify(mesh.bus, STREAM, mesh.sessions, other)).open == []

    mesh_test(1, body, **SETTINGS)
