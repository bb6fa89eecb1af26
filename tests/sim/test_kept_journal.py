"""The kept journal of format 1, read and continued by today's code."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session import SessionState
from anchorwatch.journal.integrity.repair import Order
from anchorwatch.journal.reading import open_record
from anchorwatch.journal.timeline import Narrator
from anchorwatch.models.port import ProposedCall, Situation, StepDecision
from anchorwatch.packs import registry
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.testing.bus.loop import run as run_virtual
from anchorwatch.testing.mesh import WORKSPACE, SimMesh
from anchorwatch_memory.store import MEMORY, Store

from tests.sim.test_planner import RulesPack
from tests.sim.test_repair import repairer
from tests.support.kept_journal import read_kept
from tests.support.packs import Sink, bench_agent

KEPT = read_kept()
KINDS = set(Kind) - {Kind.DEAD_LETTER}
SILENT = {
    Kind.SNAPSHOT,
    Kind.CONTROL,
    Kind.BLOCK,
    Kind.PACE,
    Kind.SWITCH,
    Kind.SCHEDULE,
    Kind.MODEL_REQUEST,
}
"""Records that have no line of their own in a timeline."""


def once(situation: Situation) -> StepDecision:
    if situation.steps:
        return StepDecision("done")
    return StepDecision("", (ProposedCall("set", {"item": f"run-{situation.run_id}"}),))


async def mesh_of_today(tmp_path: Path) -> SimMesh:
    """The kept journal on a server, its agent, and no service yet."""
    mesh = SimMesh(debounce_p0_s=0, debounce_p1_s=0, sweep_s=5)
    await mesh.open()
    KEPT.restore(mesh.server)
    Sink(tmp_path).set_world(at_ms=4_000_000_000_000)
    pack = RulesPack(once)
    pack.name = "scripted"  # as in the kept journal
    registry.register(pack)
    directory = await AgentDirectory.open(mesh.bus)
    spec = await directory.apply(WORKSPACE, bench_agent(tmp_path, pack="scripted", heartbeat_s=3600))
    assert spec.at_version == KEPT.agent
    return mesh


def test_kept_journal_holds_every_kind_of_record() -> None:
    assert {open_record(stored).record.kind for stored in KEPT.messages} == KINDS


def test_stored_records_are_all_read_and_narrated() -> None:
    report = [(open_record(stored).record.kind, Narrator().narrate(stored)) for stored in KEPT.messages]
    assert {kind for kind, entry in report if entry is None} == SILENT
    assert not [entry for _, entry in report if entry and entry.kind == "damaged"]


def test_memory_projects_the_kept_journal_without_damage() -> None:
    store = Store(MEMORY)
    store.project(KEPT.messages)
    damaged, _ = store.read(lambda db: db.execute("SELECT damaged FROM progress").fetchone()[0])
    store.close()
    assert damaged == 0


def test_kept_sessions_fold_the_same_with_and_without_snapshot(tmp_path: Path) -> None:
    async def main() -> None:
        mesh = await mesh_of_today(tmp_path)
        for session, runs, status in (
            ("fleet", 8, "idle"),
            ("by-hand", 2, "idle"),
            ("midway", 0, "active"),
            ("alarmed", 1, "idle"),
            ("metered", 1, "idle"),
            ("gone", 0, "deleted"),
            ("held", 0, "quarantined"),
        ):
            state = await mesh.sessions.load(SessionRef(WORKSPACE, session), 0)
            assert state.anchor is not None
            assert (state.anchor.run_count, state.anchor.status) == (runs, status)
            whole = mesh.sessions.fold(SessionState(), KEPT.of(session))
            assert (whole.anchor, whole.head, whole.head_digest, whole.turn) == (
                state.anchor,
                state.head,
                state.head_digest,
                state.turn,
            )
            # An older snapshot has the labelled lines without their authors.
            assert [each.text for each in whole.critical] == [each.text for each in state.critical]
        fleet = await mesh.sessions.load(SessionRef(WORKSPACE, "fleet"), 0)
        assert tuple(each.text for each in fleet.critical) == ("CRITICAL: never launch more than three.",)
        assert [past.run_id for past in fleet.history] == list(range(1, 9))
        await mesh.close()

    run_virtual(main(), 1)


@pytest.mark.parametrize(("session", "runs"), [("fleet", 9), ("by-hand", 3), ("midway", 1)])
def test_kept_session_runs_a_further_turn(tmp_path: Path, session: str, runs: int) -> None:
    async def main() -> None:
        mesh = await mesh_of_today(tmp_path)
        ref = SessionRef(WORKSPACE, session)
        for service in ("observer", "planner", "executor", "notifier"):
            await mesh.add(service)
        if session != "midway":
            await mesh.say(ref, "k-today", "go on")
        anchor = await mesh.until_rest(ref, runs, within_s=120)
        await asyncio.sleep(1)
        state = await mesh.sessions.load(ref, 0)
        await mesh.close()
        assert (anchor.run_id, anchor.last_run_outcome, state.pending) == (runs, "success", ())
        item = "m1" if session == "midway" else f"run-{runs}"
        assert [effect["item"] for effect in Sink(tmp_path).effects()].count(item) == 1

    run_virtual(main(), 1)


def test_kept_quarantined_session_is_repaired_and_runs(tmp_path: Path) -> None:
    async def main() -> None:
        mesh = await mesh_of_today(tmp_path)
        ref = SessionRef(WORKSPACE, "held")
        for service in ("observer", "planner", "executor"):
            await mesh.add(service)
        shown = await repairer(mesh).plan(ref)
        await repairer(mesh).carry_out(ref, Order(shown.digest, "ann", "", mesh.server.now_ms()))
        anchor = await mesh.until_rest(ref, 1, within_s=120)
        await mesh.close()
        assert (anchor.run_id, anchor.last_run_outcome) == (1, "success")

    run_virtual(main(), 1)
