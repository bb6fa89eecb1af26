"""Schedules in a mesh: each slot once, whoever dies and whatever the clocks do; never more than one waits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from anchorwatch.codec import decode
from anchorwatch.core.errors import Conflict, IdempotencyConflict, Refused
from anchorwatch.core.records import Kind
from anchorwatch.core.schedules.schedule import Counts, Overlap
from anchorwatch.core.schedules.zones import slot_text
from anchorwatch.edges import Edge
from anchorwatch.journal import schedules
from anchorwatch.models.port import Situation, StepDecision
from anchorwatch.testing.mesh import WORKSPACE, SimMesh
from anchorwatch.testing.process import Life
from anchorwatch.topology.streams import TICKS
from anchorwatch.topology.subjects import SLOT_SCHEDULE

from tests.sim.test_planner import agent, mesh_test, once
from tests.support.schedules import dispositions, minutes, order, schedule, slots, standing

EDGES = (
    Edge.PLANNER_OCCURRENCE_BEFORE,
    Edge.PLANNER_OCCURRENCE_AFTER,
    Edge.PLANNER_SCHEDULE_BEFORE,
    Edge.PLANNER_SCHEDULE_AFTER,
    Edge.PLANNER_ACK_BEFORE,
    Edge.PLANNER_ACQUIRE_BEFORE,
)


def test_slot_starts_a_turn_that_knows_its_schedule(tmp_path: Path) -> None:
    report: list[str] = []

    def note(situation: Situation) -> StepDecision:
        report.extend(str(wake["text"]) for wake in situation.wakes if wake["source"] == "schedule")
        return StepDecision("done")

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        ref = await mesh.session("s", agent(tmp_path, note, heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        await schedule(mesh, ref)
        await asyncio.sleep(62 - mesh.server.now_ms() / 1000 % 60)
        assert (await mesh.anchor(ref)).run_count == 2
        await asyncio.sleep(60)
        assert (await mesh.anchor(ref)).run_count == 3
        assert report == ["2026-01-01T00:01 UTC: count", "2026-01-01T00:02 UTC: count"]
        assert dispositions(mesh, ref) == {"ran": 2}
        assert (await standing(mesh)).counts.made == 2

    mesh_test(1, body, sweep_s=600)


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("reach", [1, 2])
def test_planner_killed_at_any_edge_loses_and_doubles_no_slot(tmp_path: Path, edge: Edge, reach: int) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "planner")
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        await schedule(mesh, ref)
        mesh.watch.plan(edge, reach, Life.die_here)
        for _ in range(6):
            await asyncio.sleep(60)
            for each in mesh.processes.values():
                if not each.running:
                    await each.start()
        await mesh.until_rest(ref, 7)
        assert await slots(mesh, ref) == minutes(1, 6)
        assert dispositions(mesh, ref) == {"ran": 6}

    mesh_test(reach, body, sweep_s=600)


@pytest.mark.parametrize("seed", range(4))
def test_random_kills_of_planners_and_server_lose_no_slot(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "planner")
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        await schedule(mesh, ref)
        chance = mesh.server.rng
        for _ in range(10):
            await asyncio.sleep(chance.uniform(50, 62))
            if chance.random() < 0.3:
                mesh.server.stop()
                await asyncio.sleep(chance.uniform(0, 5))
                mesh.server.start()
            each = chance.choice(list(mesh.processes.values()))
            await each.kill()
            await asyncio.sleep(chance.uniform(0, 3))
            await each.start()
        await asyncio.sleep(70)
        made = await slots(mesh, ref)
        counts = (await standing(mesh)).counts
        assert made == sorted(set(made))
        assert counts.made + counts.missed + counts.skipped == int(mesh.server.now_ms() / 60_000) % 1440
        assert len(made) == counts.made + counts.skipped

    mesh_test(seed, body, sweep_s=5)


@pytest.mark.parametrize(
    ("overlap", "expected", "became"),
    [
        ("skip", ["00:01 refused", "00:02 refused", "00:03 refused", "00:04"], {"refused": 3, "ran": 1}),
        ("queue-one", ["00:01", "00:02 coalesced", "00:03 coalesced", "00:04"], {"coalesced": 2, "ran": 2}),
    ],
)
def test_during_a_turn_it_is_skipped_or_one_waits(
    tmp_path: Path, overlap: Overlap, expected: list[str], became: dict[str, int]
) -> None:
    def fire_once(situation: Situation) -> StepDecision:
        return once("fire")(situation) if situation.run_id == 1 else StepDecision("done")

    async def body(mesh: SimMesh) -> None:
        await mesh.open("observer", "planner")
        ref = await mesh.session("s", agent(tmp_path, fire_once, heartbeat_s=3600))
        # Nobody runs its command yet, so the turn goes on.
        await schedule(mesh, ref, overlap=overlap)
        await asyncio.sleep(200)
        assert (await mesh.anchor(ref)).status == "active"
        await mesh.add("executor")
        await asyncio.sleep(60)
        await mesh.until_rest(ref, 2)
        assert await slots(mesh, ref) == expected
        assert dispositions(mesh, ref) == became

    mesh_test(1, body, sweep_s=15)


def test_paused_session_queues_one_slot_and_paused_schedule_none(
    tmp_path: Path,
) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        await schedule(mesh, ref)
        await mesh.control(ref, Kind.PAUSED, "p")
        await asyncio.sleep(200)
        assert await slots(mesh, ref) == ["00:01", "00:02 coalesced", "00:03 coalesced"]
        await mesh.control(ref, Kind.RESUMED, "r")
        await mesh.until_rest(ref, 2, within_s=5)
        await order(mesh, "pause")
        await asyncio.sleep(180)
        await order(mesh, "resume")
        await asyncio.sleep(60)
        assert len(await slots(mesh, ref)) == 4
        assert (await standing(mesh)).counts.missed == 0

    mesh_test(1, body, sweep_s=15)


@pytest.mark.parametrize("resumed", [True, False])
def test_slots_missed_before_a_pause_are_handled_once(
    tmp_path: Path,
    resumed: bool,  # noqa: FBT001
) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        await schedule(mesh, ref)
        await asyncio.sleep(59 - mesh.server.now_ms() / 1000 % 60)
        (planner,) = mesh.processes.values()
        await planner.kill()
        await asyncio.sleep(4)
        await order(mesh, "pause")
        if resumed:
            await order(mesh, "resume")
        await planner.start()
        await mesh.until_rest(ref, 2)
        assert await slots(mesh, ref) == ["00:01"]
        await asyncio.sleep(60)
        assert await slots(mesh, ref) == (["00:01", "00:02"] if resumed else ["00:01"])
        assert (await standing(mesh)).counts == Counts(made=2 if resumed else 1)

    mesh_test(1, body, sweep_s=600)


def test_schedule_ends_with_its_session(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        await schedule(mesh, ref)
        await asyncio.sleep(62)
        await mesh.control(ref, Kind.DELETED, "d")
        await asyncio.sleep(20)
        assert (await standing(mesh)).state == "ended"
        await asyncio.sleep(180)
        assert await slots(mesh, ref) == ["00:01"]

    mesh_test(1, body, sweep_s=15)


def test_lost_timer_is_set_again(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        await schedule(mesh, ref, "5 * * * *")
        await asyncio.sleep(2)
        bell = SLOT_SCHEDULE.at(workspace=WORKSPACE, name="n")
        assert (await mesh.bus.last(TICKS, [bell])).messages
        await mesh.bus.purge(TICKS, bell)
        await asyncio.sleep(310)
        assert await slots(mesh, ref) == ["00:05"]

    mesh_test(1, body, sweep_s=15)


def test_schedule_is_made_once_a_key_and_its_name_can_be_reused(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open()
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=3600))
        made = await schedule(mesh, ref)
        assert await schedule(mesh, ref) == made
        with pytest.raises(IdempotencyConflict):
            await schedule(mesh, ref, "0 * * * *")
        with pytest.raises(Conflict):
            await schedule(mesh, ref, key="other")
        await order(mesh, "delete")
        anew = await schedule(mesh, ref, key="other")
        assert anew.schedule_id != made.schedule_id
        kinds = [decode(each.payload).kind for each in mesh.journal() if "._workspace." in each.subject]
        assert kinds == [Kind.SCHEDULE, Kind.CONTROL] * 3
        assert slot_text(anew.after) == "2026-01-01T00:00"

    mesh_test(1, body)


def test_deleted_schedules_free_names_and_a_full_list_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "SCHEDULES_MAX", 2)
    monkeypatch.setattr(schedules, "NAMES_MAX", 3)

    async def body(mesh: SimMesh) -> None:
        await mesh.open()
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=3600))
        await schedule(mesh, ref, key="a", name="a")
        await schedule(mesh, ref, key="b", name="b")
        with pytest.raises(Refused, match="has 2 schedules") as caught:
            await schedule(mesh, ref, key="c", name="c")
        assert "delete one" in caught.value.hint
        await order(mesh, "delete", "a")
        await schedule(mesh, ref, key="c", name="c")
        with pytest.raises(Refused, match="has 2 schedules"):
            await schedule(mesh, ref, key="a2", name="a")
        await order(mesh, "delete", "b")
        with pytest.raises(Refused, match="3 names") as caught:
            await schedule(mesh, ref, key="d", name="d")
        assert caught.value.hint.endswith("such as a")
        anew = await schedule(mesh, ref, key="a3", name="a")
        assert await schedule(mesh, ref, key="a3", name="a") == anew

    mesh_test(1, body)
