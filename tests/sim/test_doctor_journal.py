"""The doctor says what the journal has lost, whom that may concern, and is content once a person has accepted it for each."""

from __future__ import annotations

from pathlib import Path

from anchorwatch.cli.checks import Check
from anchorwatch.cli.doctor_journal import examine
from anchorwatch.cli.doctor_stuck import examine as look_for_stuck
from anchorwatch.core.records import Kind
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.streams import journal_stream

from tests.sim.test_lost_records import last_of_planner, lose
from tests.sim.test_planner import mesh_test
from tests.sim.test_quarantine import SETTINGS, last_of_kind, open_mesh
from tests.sim.test_repair import confirm, repairer


async def said(mesh: SimMesh) -> Check:
    [check] = await examine(mesh.bus)
    return check


def test_journal_gap_is_reported_until_each_session_accepts_it(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        bad, good = await open_mesh(mesh, tmp_path)
        assert (await said(mesh)).state == "passed"
        gone = last_of_kind(mesh, bad, Kind.ARTIFACT).sequence
        mesh.server.stream(journal_stream()).remove(gone)
        check = await said(mesh)
        assert check.state == "failed"
        assert f"has lost sequence {gone} (stored after " in check.detail
        assert "it may concern bad; good" in check.detail
        await repairer(mesh).carry_out(bad, await confirm(mesh, bad))
        assert (await said(mesh)).detail.endswith("it may concern good")
        await repairer(mesh).carry_out(good, await confirm(mesh, good))
        assert (await said(mesh)).state == "passed"

    mesh_test(1, body, **SETTINGS)


def test_journal_that_ends_before_its_view_is_reported(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        bad, _ = await open_mesh(mesh, tmp_path)
        for process in mesh.processes.values():
            await process.kill()
        stream = mesh.server.stream(journal_stream())
        first = last_of_kind(mesh, bad, Kind.ACQUIRED).sequence
        for sequence in range(first, stream.last_sequence + 1):
            stream.remove(sequence)
        stream.last_sequence = first - 1
        check = await said(mesh)
        assert check.state == "failed"
        assert "has lost its end: the view of anchors is newer, in bad (run 1)" in check.detail

    mesh_test(2, body, **SETTINGS)


def test_unreadable_session_hides_no_other(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        bad, _ = await open_mesh(mesh, tmp_path)
        await mesh.processes["planner-1"].kill()
        lose(mesh, last_of_planner(mesh, bad))
        [check] = [each for each in await look_for_stuck(mesh.bus) if each.name == "sessions"]
        assert check.detail.startswith("bad: the last message of a subject")

    mesh_test(3, body, **SETTINGS)
