"""An agent's limits: they delay, and lose nothing; a person is never held up; what cannot wait is refused, and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.core.agents import Limits
from anchorwatch.core.facts import Facts
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.schedules.schedule import Definition
from anchorwatch.core.session.ledger import Ledger
from anchorwatch.core.times import from_iso
from anchorwatch.journal.orders import Asked
from anchorwatch.journal.schedules import ScheduleJournal
from anchorwatch.models.port import ProposedCall, Situation, StepDecision
from anchorwatch.packs import registry
from anchorwatch.testing.checks.wakes import ledger_of
from anchorwatch.testing.mesh import WORKSPACE, SimMesh
from anchorwatch.zones import zone_of
from anchorwatch_notifier.notices import read_notice

from tests.sim.test_planner import RulesPack, agent, mesh_test, obedient, once
from tests.support.packs import bench_agent


def limited(tmp_path: Path, seen: list[list[str]] | None = None, **limits: Any) -> Any:
    def rules(situation: Situation) -> StepDecision:
        if seen is not None:
            seen.append([str(wake["text"]) for wake in situation.wakes if wake["kind"] == "event"])
        return StepDecision("looked")

    return agent(tmp_path, rules, heartbeat_s=3600, limits=Limits(**limits))


def starts_s(mesh: SimMesh, ref: SessionRef, since_ms: int = 0) -> Sequence[float]:
    began = [each.anchor.turn for each in mesh.history(ref).of_kind(Kind.ACQUIRED)]
    instants = [each.started_at for each in began if each is not None]
    return [(from_iso(each) - since_ms) / 1000 for each in instants if from_iso(each) >= since_ms]


def ledger(mesh: SimMesh, ref: SessionRef) -> Ledger:
    found = ledger_of(mesh.history(ref))
    assert found.twice == ()
    return found


async def storm(mesh: SimMesh, ref: SessionRef, count: int, every_s: float, name: str = "e") -> None:
    for n in range(count):
        await mesh.say(ref, f"{name}{n}", f"{name}{n}", 1, "event")
        await asyncio.sleep(every_s)


@pytest.mark.parametrize("seed", range(2))
def test_minimum_interval_delays_turns_that_take_all_waiting(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        seen: list[list[str]] = []
        await mesh.open("planner", "planner")
        ref = await mesh.session("s", limited(tmp_path, seen, min_interval_s=60))
        await mesh.until_rest(ref, 1)
        await storm(mesh, ref, 100, 2.0)
        await asyncio.sleep(120)
        began = starts_s(mesh, ref)
        assert all(later - before >= 60 for before, later in pairwise(began))
        assert 4 <= len(began) <= 6
        assert [text for texts in seen for text in texts] == [f"e{n}" for n in range(100)]
        assert not ledger(mesh, ref).of("pending")

    mesh_test(seed, body, sweep_s=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_turns_an_hour_stay_within_the_limit_when_planners_die(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "planner")
        ref = await mesh.session("s", limited(tmp_path, turns_per_hour=6, burst=3))
        for n in range(60):
            await mesh.say(ref, f"e{n}", "x", n % 2, "event")
            await asyncio.sleep(60)
            if n % 20 == 7:
                process = mesh.processes[f"planner-{1 + n % 2}"]
                await process.kill()
                await process.start()
        began = starts_s(mesh, ref)
        assert len(began) <= 3 + 6
        assert len(began) >= 8
        await asyncio.sleep(1200)
        assert not ledger(mesh, ref).of("pending")

    mesh_test(seed, body)


@pytest.mark.parametrize("seed", range(2))
def test_urgent_request_of_a_person_passes_and_takes_held_inputs(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        ref = await mesh.session("s", limited(tmp_path, turns_per_hour=1, burst=1, min_interval_s=3600))
        await mesh.until_rest(ref, 1)
        for n, kind in enumerate(("message", "trigger", "message"), 2):
            await mesh.say(ref, f"e{n}", kind="event")
            await asyncio.sleep(20)
            assert (await mesh.anchor(ref)).run_count == n - 1, "an event waits"
            await mesh.say(ref, f"m{n}", "now", kind=kind)
            await mesh.until_rest(ref, n, within_s=4)
        assert not ledger(mesh, ref).of("pending")

    mesh_test(seed, body)


@pytest.mark.parametrize("seed", range(2))
def test_held_session_refuses_excess_inputs_oldest_first(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        seen: list[list[str]] = []
        await mesh.open("planner")
        ref = await mesh.session("s", limited(tmp_path, seen, min_interval_s=600, waiting_max=20))
        await mesh.until_rest(ref, 1)
        await storm(mesh, ref, 90, 1.0)
        anchor = await mesh.anchor(ref)
        refused = ledger(mesh, ref).of("refused")
        assert 60 <= len(refused) == anchor.inputs_refused < 90
        assert {each.why for each in refused} == {"rate_limited: too many waited"}
        assert len((await mesh.sessions.load(ref, 0)).pending) <= 20
        await mesh.until_rest(ref, 2, within_s=700)
        kept = 90 - len(refused)
        assert seen[-1] == [f"e{n}" for n in range(90 - kept, 90)], "the newest were kept"
        found = ledger(mesh, ref)
        assert not found.of("pending")

    mesh_test(seed, body)


def test_paused_session_refuses_excess_events_but_no_message(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        ref = await mesh.session("s", limited(tmp_path, waiting_max=10))
        await mesh.until_rest(ref, 1)
        await mesh.control(ref, Kind.PAUSED, "p")
        await storm(mesh, ref, 30, 1.0)
        said = await mesh.say(ref, "m", "remember this", 1)
        await storm(mesh, ref, 30, 1.0, "later")
        found = ledger(mesh, ref)
        assert said.sequence in [each.sequence for each in found.of("pending")]
        assert len(found.of("refused")) == (await mesh.anchor(ref)).inputs_refused > 20
        await mesh.control(ref, Kind.RESUMED, "r")
        await mesh.until_rest(ref, 2, within_s=30)
        assert not ledger(mesh, ref).of("pending")

    mesh_test(5, body)


def test_schedule_occurrence_lets_no_storm_wait_after_it(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        ref = await mesh.session("s", limited(tmp_path, waiting_max=10))
        await mesh.until_rest(ref, 1)
        await mesh.control(ref, Kind.PAUSED, "p")
        schedules = ScheduleJournal(mesh.bus, mesh.committer, "outside")
        definition = Definition(WORKSPACE, "n", "s", "* * * * *", "UTC")
        await schedules.make(definition, zone_of("UTC"), Asked("c-1", "ada", "x"), mesh.server.now_ms())
        await asyncio.sleep(70)
        assert [each.kind for each in (await mesh.sessions.load(ref, 0)).pending] == ["tick"]
        await storm(mesh, ref, 200, 1.0)
        assert len((await mesh.sessions.load(ref, 0)).pending) <= 11
        await asyncio.sleep(65)
        assert (await mesh.sessions.load(ref, 0)).pending[-1].kind == "tick", (
            "its next slot waits in its place"
        )
        await mesh.control(ref, Kind.RESUMED, "r")
        await mesh.until_rest(ref, 2, within_s=30)
        assert not ledger(mesh, ref).of("pending")

    mesh_test(5, body)


def test_session_without_progress_slows_down_until_a_person_acts(
    tmp_path: Path,
) -> None:
    async def body(mesh: SimMesh) -> None:
        def rules(situation: Situation) -> StepDecision:
            return StepDecision("", (ProposedCall("look", {"item": str(len(situation.steps))}),))

        await mesh.open("planner", ("executor", obedient))
        never_done = agent(tmp_path, rules, heartbeat_s=300, limits=Limits(steps_max=1))
        ref = await mesh.session("s", never_done)
        for n in range(200):
            await mesh.say(ref, f"e{n}", "x", n % 2, "event")
            await asyncio.sleep(5)
        anchor = await mesh.anchor(ref)
        assert anchor.last_run_outcome == "failed"
        began = starts_s(mesh, ref)
        pauses = [later - before for before, later in pairwise(began)]
        assert max(pauses[:2]) < 15, "at first it tries again with every event"
        assert min(pauses[3:]) >= 15, "then an urgent one waits a while"
        await mesh.say(ref, "m", "try again", kind="trigger")
        await mesh.until_rest(ref, anchor.run_count + 1, within_s=3)
        assert not ledger(mesh, ref).twice

    mesh_test(4, body)


class FutilePack(RulesPack):
    """Its calls succeed, and lead to nothing."""

    name = "futile"

    def no_progress(self, facts: Facts) -> str | None:
        del facts
        return "all that was started has ended"


def test_success_that_leads_to_nothing_slows_down_and_notifies(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        registry.register(FutilePack(once("fire")))
        await mesh.open("planner", ("executor", obedient))
        ref = await mesh.session("s", bench_agent(tmp_path, pack="futile", heartbeat_s=300))
        for n in range(40):
            await mesh.say(ref, f"e{n}", "x", 0, "event")
            await asyncio.sleep(3)
        anchor = await mesh.anchor(ref)
        assert anchor.last_run_outcome == "unresolved"
        assert anchor.last_run_reason == "fire succeeded, but all that was started has ended"
        began = starts_s(mesh, ref)
        pauses = [later - before for before, later in pairwise(began)]
        assert max(pauses[:2]) < 15
        assert min(pauses[3:]) >= 15
        told = [notice for each in mesh.journal() if (notice := read_notice(each)) is not None]
        (alarm,) = [each for each in told if "no_progress" in each.kinds]
        assert (alarm.data["run"], alarm.severity) == (3, "critical")

    mesh_test(4, body)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_shared_limit_holds_for_all_sessions_and_starves_none(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "planner", "planner")
        spec = limited(tmp_path, agent_turns_per_hour=12, burst=2)
        refs = [await mesh.session(f"s{n}", spec) for n in range(4)]
        for n in range(180):
            for ref in refs:
                await mesh.say(ref, f"e{n}", "x", n % 2, "event")
            await asyncio.sleep(30)
            if n % 25 == 3:
                process = mesh.processes[f"planner-{1 + n % 3}"]
                await process.kill()
                await process.start()
        began = sorted(each for ref in refs for each in starts_s(mesh, ref))
        assert 17 <= len(began) <= 2 + 18
        assert all(later - before >= 300 for before, later in pairwise(began[2:]))
        counts = [len(starts_s(mesh, ref)) for ref in refs]
        assert min(counts) >= 2, "each has its turns"
        await mesh.say(refs[0], "m", "now")
        await mesh.until_rest(refs[0], counts[0] + 1, within_s=4)

    mesh_test(seed, body)


@pytest.mark.parametrize("heartbeat_s", [1e13, 1e300, float("inf")])
def test_heartbeat_passed_by_an_earlier_release_wedges_no_turn(tmp_path: Path, heartbeat_s: float) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        spec = limited(tmp_path)
        ref = await mesh.session("s", spec.model_copy(update={"heartbeat_s": heartbeat_s}))
        await mesh.until_rest(ref, 1, within_s=5)
        await mesh.control(ref, Kind.PAUSED, "p")
        await mesh.control(ref, Kind.RESUMED, "r")
        await mesh.say(ref, "m", "now")
        await mesh.until_rest(ref, 2, within_s=5)
        assert (await mesh.anchor(ref)).last_run_outcome == "no_action"

    mesh_test(1, body)
