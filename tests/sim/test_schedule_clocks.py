"""Schedules when clocks are set, and when nobody was there: each slot is accounted for, and none comes twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from anchorwatch.core.schedules.schedule import Counts, Missed
from anchorwatch.testing.mesh import SimMesh

from tests.sim.test_planner import agent, mesh_test, once
from tests.support.schedules import dispositions, schedule, slots, standing

HOUR_S = 3_600.0


@pytest.mark.slow
def test_clock_set_forward_loses_no_slot_and_back_repeats_none(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "planner")
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=3600 * 9))
        await mesh.until_rest(ref, 1)
        await schedule(mesh, ref, "*/10 * * * *")
        await asyncio.sleep(12 * 60)
        mesh.server.step_clock(HOUR_S)
        await asyncio.sleep(10 * 60)
        # 01:10 stood for those that the clock jumped over; 01:20 came at its time.
        assert await slots(mesh, ref) == ["00:10", "01:10", "01:20"]
        assert (await standing(mesh)).counts.missed == 5
        mesh.server.step_clock(-HOUR_S)
        await asyncio.sleep(25 * 60)
        assert len(await slots(mesh, ref)) == 3
        mesh.server.step_clock(HOUR_S)
        await asyncio.sleep(15 * 60)
        made = await slots(mesh, ref)
        assert made[3:] == ["01:40", "01:50", "02:00"]
        assert (await standing(mesh)).counts == Counts(made=6, missed=6)

    mesh_test(1, body, sweep_s=15)


def test_clock_set_back_and_then_corrected_loses_no_slot(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=3600 * 9))
        await mesh.until_rest(ref, 1)
        await schedule(mesh, ref, "*/10 * * * *")
        await asyncio.sleep(12 * 60)
        mesh.server.step_clock(-HOUR_S)
        await asyncio.sleep(10 * 60)
        assert await slots(mesh, ref) == ["00:10"]
        mesh.server.step_clock(HOUR_S)
        await asyncio.sleep(10 * 60)
        # At 00:22 the slot of 00:20 was late, and made all the same.
        assert await slots(mesh, ref) == ["00:10", "00:20", "00:30"]
        assert (await standing(mesh)).counts == Counts(made=3)

    mesh_test(1, body, sweep_s=15)


@pytest.mark.parametrize(("missed", "became"), [("one", "ran"), ("skip", "expired")])
def test_slots_missed_without_a_planner_are_one_slot_or_none(
    tmp_path: Path, missed: Missed, became: str
) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=3600 * 9))
        await mesh.until_rest(ref, 1)
        await schedule(mesh, ref, "*/10 * * * *", missed=missed)
        await mesh.processes["planner-1"].kill()
        await asyncio.sleep(58 * 60)
        await mesh.processes["planner-1"].start()
        await asyncio.sleep(10)
        assert await slots(mesh, ref) == ["00:50" if missed == "one" else "00:50 expired"]
        assert dispositions(mesh, ref) == {became: 1}
        assert (await mesh.anchor(ref)).run_count == (2 if missed == "one" else 1)
        await asyncio.sleep(120)
        assert (await slots(mesh, ref))[1:] == ["01:00"]

    mesh_test(1, body, sweep_s=15)
