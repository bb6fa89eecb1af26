"""A record that a server's disk has lost: its session refuses to run until it is repaired, and nothing runs twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from anchorwatch.codec import decode_anchor
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.streams import journal_stream

from tests.sim.test_planner import mesh_test
from tests.sim.test_quarantine import (
    SETTINGS,
    open_mesh,
    quarantined,
    readable,
    records_of,
)
from tests.sim.test_repair import confirm, repairer, runs_again
from tests.sim.test_verify import examined


def lose(mesh: SimMesh, sequence: int) -> None:
    mesh.server.stream(journal_stream()).make_unreadable(sequence)


def last_of_planner(mesh: SimMesh, ref: SessionRef) -> int:
    return [each for each in records_of(mesh, ref) if ".p." in each.subject][-1].sequence


@pytest.mark.parametrize("kind", [Kind.TURN_ENDED, Kind.SNAPSHOT, Kind.COMMAND])
def test_session_that_lost_its_last_planner_record_is_repaired(tmp_path: Path, kind: str) -> None:
    async def body(mesh: SimMesh) -> None:
        ref, good = await open_mesh(mesh, tmp_path)
        await mesh.processes["planner-1"].kill()
        if kind == Kind.SNAPSHOT:
            await mesh.sessions.snapshot(ref, await mesh.sessions.load(ref, 0), mesh.server.now_ms())
        if kind == Kind.COMMAND:
            await mesh.processes["executor-1"].kill()
            await mesh.say(ref, "go", kind="trigger")
            await mesh.processes["planner-1"].start()

            async def decided() -> bool:
                return [readable(each) for each in records_of(mesh, ref)].count(Kind.COMMAND) == 6

            await mesh.until(decided)
            await mesh.processes["planner-1"].kill()
        before = await mesh.anchor(ref)
        last = last_of_planner(mesh, ref)
        assert readable(mesh.server.stream(journal_stream()).messages[last]) == kind
        lose(mesh, last)
        await mesh.processes["planner-1"].start()
        if kind == Kind.COMMAND:
            await mesh.processes["executor-1"].start()
        await mesh.say(ref, "while-broken", "and then?")
        anchor, _ = await quarantined(mesh, ref)
        assert anchor.fence.run >= before.fence.run
        assert anchor.run_id >= before.run_id
        found = await examined(mesh, ref)
        assert ("lost", last) in [(each.trouble, each.sequence) for each in found.open]
        done = await repairer(mesh).carry_out(ref, await confirm(mesh, ref))
        assert (await examined(mesh, ref)).to_json()["repairs"][0]["by"] == "ann"
        assert done.sequence > last
        await runs_again(mesh, ref)
        await mesh.say(good, "other", kind="trigger")
        await mesh.until_rest(good, 2)

    mesh_test(1, body, **SETTINGS)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_lost_last_anchors_start_no_run_twice(tmp_path: Path, cut: int) -> None:
    async def body(mesh: SimMesh) -> None:
        ref, _ = await open_mesh(mesh, tmp_path)
        await mesh.say(ref, "second", kind="trigger")
        before = await mesh.until_rest(ref, 2)
        await mesh.processes["planner-1"].kill()
        for stored in [each for each in records_of(mesh, ref) if ".p.anchor." in each.subject][-cut:]:
            lose(mesh, stored.sequence)
        await mesh.processes["planner-1"].start()
        await mesh.say(ref, "while-broken", "and then?")
        anchor, _ = await quarantined(mesh, ref)
        assert (anchor.fence.run, anchor.run_id) >= (before.fence.run, before.run_id)
        await repairer(mesh).carry_out(ref, await confirm(mesh, ref))
        await runs_again(mesh, ref)
        runs = [
            decode_anchor(each.payload)[0].run_id
            for each in records_of(mesh, ref)
            if readable(each) == Kind.ACQUIRED
        ]
        assert len(set(runs)) == len(runs)
        assert runs[-1] == before.run_id + 1

    mesh_test(2, body, **SETTINGS)
