"""Damage of each kind, verified, repaired, and a turn that runs again; a repair that is killed, overtaken, or asked for twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.bus.port import Message, Stored
from anchorwatch.codec import decode, decode_anchor
from anchorwatch.core.errors import ChangedSince, NewerSchema, Refused, SessionDeleted
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session.commands import Control
from anchorwatch.core.session.decide import decide
from anchorwatch.journal.blocks import BlockJournal, Resource, read_block
from anchorwatch.journal.integrity.repair import Order, Repairer
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import SessionSubjects

from tests.sim.test_planner import mesh_test
from tests.sim.test_quarantine import (
    SETTINGS,
    STOPS,
    TELLS,
    last_of_kind,
    newer,
    open_mesh,
    quarantined,
    readable,
    records_of,
    restart_planner,
    rot,
)
from tests.sim.test_verify import examined
from tests.support.packs import Sink

NOISE = (
    "in.k-x",
    "p.anchor.change",
    "p.anchor.turn",
    "p.log",
    "p.cmd.default",
    *(f"fx.default.1.9.1.{name}" for name in ("gate", "claim", "done")),
)


def repairer(mesh: SimMesh, pack: str = "rules") -> Repairer:
    async def pack_of(workspace: str, agent: str) -> str:
        del workspace, agent
        return pack

    blocks = BlockJournal(mesh.bus, mesh.committer, "outside")
    return Repairer(mesh.bus, mesh.committer, mesh.sessions, blocks, "outside", pack_of)


async def confirm(mesh: SimMesh, ref: SessionRef, note: str = "the disk was replaced") -> Order:
    """The order that a person gives who was shown the plan."""
    shown = await repairer(mesh).plan(ref)
    return Order(shown.digest, "ann", note, mesh.server.now_ms())


async def runs_again(mesh: SimMesh, ref: SessionRef) -> None:
    """It takes what it was told meanwhile, and what it is told now, each once; its runs have no gap."""
    result = await mesh.say(ref, "again", "are you there?")

    async def taken() -> bool:
        state = await mesh.sessions.load(ref, result.sequence)
        idle = state.anchor is not None and state.anchor.status == "idle"
        return idle and not state.takes(result.sequence)

    await mesh.until(taken, within_s=120)
    assert (await mesh.anchor(ref)).last_run_outcome == "success"
    await asyncio.sleep(30)
    state = await mesh.sessions.load(ref, 0)
    assert state.pending == ()
    assert (await mesh.anchor(ref)).status == "idle"
    after = await examined(mesh, ref)
    assert after.to_json()["whole"]
    assert after.to_json()["runs"]


async def broken(mesh: SimMesh, tmp_path: Path) -> SessionRef:
    """A session that was quarantined over its last input, and was told something since."""
    ref, _ = await open_mesh(mesh, tmp_path)
    rot(mesh, last_of_kind(mesh, ref, Kind.INPUT))
    await restart_planner(mesh)
    await mesh.say(ref, "while-broken", "and then?")
    await quarantined(mesh, ref)
    return ref


@pytest.mark.parametrize("kind", STOPS)
def test_quarantine_cause_is_repaired_and_a_turn_runs(tmp_path: Path, kind: str) -> None:
    async def body(mesh: SimMesh) -> None:
        ref, _ = await open_mesh(mesh, tmp_path)
        if kind == Kind.SNAPSHOT:
            await mesh.sessions.snapshot(ref, await mesh.sessions.load(ref, 0), mesh.server.now_ms())
        before = await mesh.anchor(ref)
        damaged = last_of_kind(mesh, ref, kind)
        rot(mesh, damaged)
        await restart_planner(mesh)
        await mesh.say(ref, "while-broken", "and then?")
        await quarantined(mesh, ref)
        found = await examined(mesh, ref)
        assert [each.sequence for each in found.open] == [damaged.sequence]
        order = await confirm(mesh, ref)
        done = await repairer(mesh).carry_out(ref, order)
        assert not done.replayed
        after = await mesh.anchor(ref)
        assert after.generation > before.generation
        assert (after.run_id, after.constraints) == (before.run_id, before.constraints)
        assert after.fence.run >= before.fence.run
        report = (await examined(mesh, ref)).to_json()
        assert report["whole"]
        assert [each["accepted_at"] for each in report["findings"]] == [done.sequence]
        (repair,) = report["repairs"]
        assert (repair["sequence"], repair["by"], repair["note"]) == (
            done.sequence,
            "ann",
            "the disk was replaced",
        )
        await runs_again(mesh, ref)

    mesh_test(1, body, **SETTINGS)


@pytest.mark.parametrize("register", NOISE)
def test_noise_is_repaired_and_a_turn_runs(tmp_path: Path, register: str) -> None:
    async def body(mesh: SimMesh) -> None:
        ref, _ = await open_mesh(mesh, tmp_path)
        await mesh.bus.publish(
            Message(SessionSubjects(ref).everything.removesuffix(">") + register, b"noise")
        )
        await restart_planner(mesh)
        await mesh.say(ref, "while-broken", "and then?")
        await quarantined(mesh, ref)
        await repairer(mesh).carry_out(ref, await confirm(mesh, ref))
        await runs_again(mesh, ref)

    mesh_test(2, body, **SETTINGS)


@pytest.mark.parametrize("kind", TELLS)
def test_harmless_damage_is_accepted_without_other_changes(tmp_path: Path, kind: str) -> None:
    async def body(mesh: SimMesh) -> None:
        ref, _ = await open_mesh(mesh, tmp_path)
        rot(mesh, last_of_kind(mesh, ref, kind))
        before = await mesh.anchor(ref)
        shown = await repairer(mesh).plan(ref)
        assert (shown.restarts, shown.reloads) == (False, False)
        await repairer(mesh).carry_out(ref, await confirm(mesh, ref))
        assert await mesh.anchor(ref) == before
        await runs_again(mesh, ref)

    mesh_test(3, body, **SETTINGS)


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_lost_anchors_are_rebuilt_and_no_run_starts_twice(tmp_path: Path, cut: int) -> None:
    async def body(mesh: SimMesh) -> None:
        ref, _ = await open_mesh(mesh, tmp_path)
        await mesh.say(ref, "second", kind="trigger")
        before = await mesh.until_rest(ref, 2)
        await asyncio.sleep(1)
        for stored in [each for each in records_of(mesh, ref) if ".p.anchor." in each.subject][-cut:]:
            rot(mesh, stored)
        await restart_planner(mesh)
        await quarantined(mesh, ref)
        await repairer(mesh).carry_out(ref, await confirm(mesh, ref))
        await runs_again(mesh, ref)
        acquired = [
            each["run_id"]
            for each in await readable_anchors(mesh, ref)
            if each["record"]["kind"] == Kind.ACQUIRED
        ]
        assert len(set(acquired)) == len(acquired)
        assert acquired[-1] == before.run_id + 1

    mesh_test(5, body, **SETTINGS)


async def readable_anchors(mesh: SimMesh, ref: SessionRef) -> list[dict[str, Any]]:
    found = []
    for stored in records_of(mesh, ref):
        if ".p.anchor." in stored.subject and readable(stored):
            anchor, record = decode_anchor(stored.payload)
            found.append({**anchor.to_json(), "record": {"kind": record.kind}})
    return found


def test_simultaneous_damage_of_every_kind_is_repaired(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        ref, _ = await open_mesh(mesh, tmp_path)
        for kind in (*STOPS, *TELLS):
            if kind not in (Kind.CREATED, Kind.SNAPSHOT):
                rot(mesh, last_of_kind(mesh, ref, kind))
        await restart_planner(mesh)
        await mesh.say(ref, "while-broken", "and then?")
        await quarantined(mesh, ref)
        await repairer(mesh).carry_out(ref, await confirm(mesh, ref))
        await runs_again(mesh, ref)

    mesh_test(6, body, **SETTINGS)


@pytest.mark.parametrize("register", ["claim", "done"])
def test_lost_effect_is_unknown_and_blocks_its_resource(tmp_path: Path, register: str) -> None:
    async def body(mesh: SimMesh) -> None:
        ref, _ = await open_mesh(mesh, tmp_path)
        family = f".fx.default.1.1.1.{register}"
        damaged = next(each for each in records_of(mesh, ref) if each.subject.endswith(family))
        rot(mesh, damaged)
        if register == "claim":
            done = next(
                each for each in records_of(mesh, ref) if each.subject.endswith(".fx.default.1.1.1.done")
            )
            rot(mesh, done)
        await restart_planner(mesh)
        await quarantined(mesh, ref)
        await repairer(mesh).carry_out(ref, await confirm(mesh, ref))
        last = [each for each in records_of(mesh, ref) if each.subject.endswith(".fx.default.1.1.1.unknown")][
            -1
        ]
        body = decode(last.payload).body
        assert (body["state"], body["error"]) == ("unknown", "damaged_record")
        state = await mesh.sessions.load(ref, 0)
        assert [each.resource for each in state.unsettled] == ["set/run-1"]
        assert f"{ref.session}/1.1.1" in map(str, read_block(_blocks(mesh)[-1]).entries)
        await runs_again(mesh, ref)
        keys = [each["key"] for each in Sink(tmp_path).effects("run-1")]
        assert len([key for key in keys if "-bad-" in key]) == 1, "it is not run again"

    mesh_test(7, body, **SETTINGS)


def _blocks(mesh: SimMesh) -> list[Stored]:
    """Every record of the register of ``set/run-1``, in order."""
    subject = Resource("default", "rules", "set/run-1").subject
    stored = mesh.server.stream(journal_stream()).messages.values()
    return [each for each in stored if each.subject == subject]


def test_running_turn_ends_failed_and_its_commands_never_start(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        ref, _ = await open_mesh(mesh, tmp_path)
        await mesh.processes["executor-1"].kill()
        await mesh.say(ref, "go", "CRITICAL: mind the lock.")

        async def decided() -> bool:
            return [readable(each) for each in records_of(mesh, ref)].count(Kind.COMMAND) == 6

        await mesh.until(decided)
        rot(mesh, last_of_kind(mesh, ref, Kind.COMMAND))
        await restart_planner(mesh)
        await quarantined(mesh, ref)
        shown = await repairer(mesh).plan(ref)
        assert shown.to_json()["ends_turn"]
        await repairer(mesh).carry_out(ref, await confirm(mesh, ref))
        await mesh.processes["executor-1"].start()
        ended = await mesh.anchor(ref)
        assert (ended.last_run_id, ended.last_run_outcome, ended.fence.run) == (2, "failed", 3)
        await runs_again(mesh, ref)
        assert [each["item"] for each in Sink(tmp_path).effects()].count("run-2") == 0
        state = await mesh.sessions.load(ref, 0)
        assert tuple(each.text for each in state.critical) == ("CRITICAL: mind the lock.",)
        assert (2, "failed") in [(past.run_id, past.outcome) for past in state.history]

    mesh_test(8, body, **SETTINGS)


def test_repeated_plan_is_carried_out_once(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        ref = await broken(mesh, tmp_path)
        order = await confirm(mesh, ref)
        first = await repairer(mesh).carry_out(ref, order)
        again = await repairer(mesh).carry_out(ref, replace(order, by="bob"))
        assert (again.sequence, again.by, again.replayed) == (first.sequence, "ann", True)
        await runs_again(mesh, ref)
        assert (await repairer(mesh).carry_out(ref, order)).replayed
        assert [readable(each) for each in records_of(mesh, ref)].count(Kind.REPAIRED) == 1

    mesh_test(9, body, **SETTINGS)


def test_plan_of_a_session_that_has_changed_is_refused(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        ref = await broken(mesh, tmp_path)
        order = await confirm(mesh, ref)
        await mesh.say(ref, "meanwhile", "an input changes nothing of it")
        await repairer(mesh).plan(ref)
        rot(mesh, last_of_kind(mesh, ref, Kind.INPUT))
        with pytest.raises(ChangedSince):
            await repairer(mesh).carry_out(ref, order)
        assert (await mesh.anchor(ref)).status == "quarantined"
        await repairer(mesh).carry_out(ref, await confirm(mesh, ref))
        await runs_again(mesh, ref)

    mesh_test(10, body, **SETTINGS)


@pytest.mark.parametrize("seed", range(12))
def test_killed_repair_is_continued_by_the_same_plan(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        ref, _ = await open_mesh(mesh, tmp_path)
        for kind in (Kind.OUTCOME, Kind.COMMAND):
            rot(mesh, last_of_kind(mesh, ref, kind))
        await restart_planner(mesh)
        await quarantined(mesh, ref)
        order = await confirm(mesh, ref)
        task = asyncio.ensure_future(repairer(mesh).carry_out(ref, order))
        for _ in range(seed * 3):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await repairer(mesh).carry_out(ref, order)
        assert [readable(each) for each in records_of(mesh, ref)].count(Kind.REPAIRED) == 1
        await runs_again(mesh, ref)

    mesh_test(11, body, **SETTINGS)


def test_record_damaged_again_after_a_repair_is_found(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        ref = await broken(mesh, tmp_path)
        damaged = (await examined(mesh, ref)).open[0]
        await repairer(mesh).carry_out(ref, await confirm(mesh, ref))
        await runs_again(mesh, ref)
        mesh.server.stream(journal_stream()).corrupt(damaged.sequence, b"something else")
        assert [each.sequence for each in (await examined(mesh, ref)).open] == [damaged.sequence]

    mesh_test(12, body, **SETTINGS)


def test_paused_session_stays_paused(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        ref, _ = await open_mesh(mesh, tmp_path)
        state, now_ms = await mesh.sessions.load(ref, 0), mesh.server.now_ms()
        await mesh.sessions.append(ref, state, decide(state, Control(Kind.PAUSED, "ann", now_ms)), now_ms)
        rot(mesh, last_of_kind(mesh, ref, Kind.INPUT))
        await restart_planner(mesh)
        await quarantined(mesh, ref)
        await repairer(mesh).carry_out(ref, await confirm(mesh, ref))
        assert (await mesh.anchor(ref)).status == "paused"

    mesh_test(13, body, **SETTINGS)


def test_healthy_deleted_or_newer_session_is_not_repaired(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        bad, good = await open_mesh(mesh, tmp_path)
        with pytest.raises(Refused, match="nothing to repair"):
            await repairer(mesh).plan(good)
        await mesh.bus.publish(Message(SessionSubjects(bad).input("k-new"), newer()))
        with pytest.raises(NewerSchema, match="upgrade"):
            await repairer(mesh).plan(bad)
        state, now_ms = await mesh.sessions.load(good, 0), mesh.server.now_ms()
        await mesh.sessions.append(good, state, decide(state, Control(Kind.DELETED, "ann", now_ms)), now_ms)
        rot(mesh, last_of_kind(mesh, good, Kind.INPUT))
        with pytest.raises(SessionDeleted):
            await repairer(mesh).plan(good)

    mesh_test(14, body, **SETTINGS)


def test_session_without_a_readable_anchor_is_not_repaired(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        ref, good = await open_mesh(mesh, tmp_path)
        for stored in records_of(mesh, ref):
            if ".p.anchor." in stored.subject:
                rot(mesh, stored)
        await restart_planner(mesh)
        await mesh.say(ref, "x", kind="trigger")
        await mesh.say(good, "x", kind="trigger")
        await mesh.until_rest(good, 2)
        await asyncio.sleep(30)
        with pytest.raises(Refused, match="has no readable anchor"):
            await repairer(mesh).plan(ref)
        kinds = [readable(each) for each in records_of(mesh, ref)]
        assert Kind.QUARANTINED not in kinds

    mesh_test(15, body, **SETTINGS)
