"""Sessions that nothing would wake: those who look at every session find them, and look."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from anchorwatch.cli.doctor_wakes import examine
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.schedules.schedule import Definition
from anchorwatch.core.session.commands import ClearWakes, Control
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.events import AnchorChanged
from anchorwatch.edges import Edge
from anchorwatch.journal.orders import Asked
from anchorwatch.journal.schedules import ScheduleJournal
from anchorwatch.testing.mesh import WORKSPACE, SimMesh
from anchorwatch.zones import zone_of

from tests.sim.test_planner import agent, mesh_test, once

HOUR_S = 3_600.0


async def forget_check(mesh: SimMesh, ref: SessionRef) -> None:
    """An anchor without a next check, as no writer of this release leaves one."""
    state = await mesh.sessions.load(ref, 0)
    for kind in (Kind.PAUSED, Kind.RESUMED):
        (change,) = decide(state, Control(kind, "outside", mesh.server.now_ms()))
        assert isinstance(change, AnchorChanged)
        forgetful = replace(change, anchor=replace(change.anchor, next_check_at=None))
        state = await mesh.sessions.append(ref, state, [forgetful], mesh.server.now_ms())


@pytest.mark.parametrize("pending", [False, True])
def test_session_without_a_scheduled_wake_is_checked(tmp_path: Path, *, pending: bool) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=60))
        await mesh.until_rest(ref, 1)
        planner = mesh.processes["planner-1"]
        await planner.kill()
        await forget_check(mesh, ref)
        if pending:
            # It waits for a next check, and there is none.
            await mesh.say(ref, "m", priority=2)
        await planner.start()
        await mesh.until_rest(ref, 2, within_s=10)
        assert (await mesh.anchor(ref)).next_check_at is not None
        await mesh.until_rest(ref, 3, within_s=70)

    mesh_test(1, body, sweep_s=5)


@pytest.mark.parametrize("starting", [False, True])
def test_heartbeat_holds_though_a_clock_ran_ahead_at_the_check(
    tmp_path: Path,
    *,
    starting: bool,
) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=60))
        await mesh.until_rest(ref, 1)
        mesh.server.step_clock(HOUR_S)
        await mesh.say(ref, "m", kind="trigger")
        await mesh.until_rest(ref, 2, within_s=10)
        mesh.server.step_clock(-HOUR_S)
        if starting:
            await mesh.processes["planner-1"].kill()
            await mesh.processes["planner-1"].start()
        await mesh.until_rest(ref, 3, within_s=20)
        runs = (await mesh.anchor(ref)).run_count
        await asyncio.sleep(65)
        assert runs + 1 <= (await mesh.anchor(ref)).run_count <= runs + 2

    mesh_test(1, body, sweep_s=600 if starting else 10)


def test_doctor_finds_sessions_that_no_planner_checks(tmp_path: Path) -> None:
    async def said(mesh: SimMesh) -> dict[str, str]:
        checks, neglected = await examine(mesh.bus)
        found = {check.name: f"{check.state}: {check.detail}" for check in checks}
        assert [str(each.ref) for each in neglected] == (
            ["default/s"] if found["wakes"].startswith("failed") else []
        )
        return found

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=60))
        await mesh.until_rest(ref, 1)
        await asyncio.sleep(1)
        assert (await said(mesh))["wakes"].startswith("passed: 1 session")
        definition = Definition(WORKSPACE, "n", "s", "* * * * *", "UTC")
        journal = ScheduleJournal(mesh.bus, mesh.committer, "outside")
        await journal.make(definition, zone_of("UTC"), Asked("c-1", "ada", "x"), mesh.server.now_ms())
        planner = mesh.processes["planner-1"]
        await planner.kill()
        await asyncio.sleep(200)
        found = await said(mesh)
        assert "its check of" in found["wakes"]
        assert "n was due" in found["schedules"]
        await forget_check(mesh, ref)
        assert "s: it has no next check" in (await said(mesh))["wakes"]
        await planner.start()
        await mesh.until_rest(ref, 2, within_s=10)
        await asyncio.sleep(1)
        assert {each.partition(":")[0] for each in (await said(mesh)).values()} == {"passed"}

    mesh_test(1, body, sweep_s=5)


def test_check_cleared_by_a_person_is_scheduled_again(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        planner = mesh.processes["planner-1"]
        mesh.watch.plan(Edge.PLANNER_TICK_INPUT_AFTER, 1, lambda life: life.die_here())
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=60))

        async def dead() -> bool:
            return not planner.running

        await mesh.until(dead)
        state = await mesh.sessions.load(ref, 0)
        assert [wake.kind for wake in state.pending] == ["tick"]
        clear = ClearWakes("ada", mesh.server.now_ms(), through=state.read_through, control_id="c")
        await mesh.orders.carry_out(ref, Asked("c", "ada", "b"), lambda _: clear)
        await planner.start()
        await mesh.until_rest(ref, 1, within_s=10)

    mesh_test(1, body, sweep_s=5)
