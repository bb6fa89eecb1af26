"""The doctor does not say that all is well while something has come to a stop (INV-1103)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from anchorwatch.bus.port import Message
from anchorwatch.cli import doctor_journal
from anchorwatch.cli.doctor_services import channels
from anchorwatch.cli.doctor_stuck import examine, no_progress
from anchorwatch.core.anchor import Anchor, RunOutcome
from anchorwatch.core.emergency import OpenEmergency
from anchorwatch.core.records import Kind
from anchorwatch.models.port import ProposedCall, Situation, StepDecision
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.subjects import SessionSubjects

from tests.sim.poison import session_without_pack
from tests.sim.test_kill_switch import turn
from tests.sim.test_planner import agent, mesh_test, once
from tests.sim.test_quarantine import SETTINGS, quarantined
from tests.sim.test_resolutions import FRESH_MS, settle
from tests.support.letters import in_state
from tests.support.letters import mesh_test as poisoned_mesh_test
from tests.support.packs import Sink

WELL = dict.fromkeys(("dead letters", "sessions", "progress", "effects", "kill switches"), "passed")


async def states(mesh: SimMesh) -> dict[str, str]:
    return {check.name: check.state for check in await examine(mesh.bus)}


async def detail(mesh: SimMesh, name: str) -> str:
    return next(check.detail for check in await examine(mesh.bus) if check.name == name)


def test_open_dead_letter_fails_the_check(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        ref, pack = await session_without_pack(mesh, tmp_path)
        await mesh.until(in_state(mesh.bus, "open"), within_s=400)
        assert (await states(mesh))["dead letters"] == "failed"
        assert "planner-s: unknown pack 'missing'" in await detail(mesh, "dead letters")
        pack.missing = False
        await mesh.until_rest(ref, 1, within_s=60)
        await mesh.until(in_state(mesh.bus, "done"), within_s=60)
        assert await states(mesh) == WELL

    poisoned_mesh_test(body)


def test_stalled_turn_fails_the_check_unless_held(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        spec = agent(tmp_path, once("fire"), heartbeat_s=3600)
        await mesh.session("s", spec)
        await asyncio.sleep(14 * 60)
        assert await states(mesh) == WELL, "it waits for an executor, and not for long"
        await asyncio.sleep(2 * 60)
        assert "s: run 1 has recorded nothing for 16 min" in await detail(mesh, "sessions")
        await turn(mesh, "session", "on", on=True)
        assert await states(mesh) == WELL | {"kill switches": "warning"}
        assert "session s is on, by ada" in await detail(mesh, "kill switches")

    mesh_test(1, body)


def test_quarantined_session_fails_the_check(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        await mesh.bus.publish(Message(SessionSubjects(ref).log, b"no record"))
        await mesh.say(ref, "m")
        await quarantined(mesh, ref)
        assert (await detail(mesh, "sessions")).startswith("s is quarantined: ")

    mesh_test(1, body, **SETTINGS)


def test_unknown_effect_fails_the_check_until_resolved(tmp_path: Path) -> None:
    def rules(situation: Situation) -> StepDecision:
        first = situation.run_id == 1 and not situation.steps
        return StepDecision("", (ProposedCall("fire", {"item": "x", "mode": "lost"}),) if first else ())

    async def body(mesh: SimMesh) -> None:
        Sink(tmp_path).set_world(at_ms=FRESH_MS)
        await mesh.open("observer", "planner", "executor")
        ref = await mesh.session("s", agent(tmp_path, rules, heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        assert await states(mesh) == WELL | {"effects": "failed", "progress": "failed"}
        assert "s: turn 1 left it unresolved: " in await detail(mesh, "progress")
        assert ": s/1.1.1" in await detail(mesh, "effects")
        await settle(mesh, ref)
        await asyncio.sleep(10)
        assert await states(mesh) == WELL

    mesh_test(1, body)


def test_paused_session_is_a_warning(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        await mesh.control(ref, Kind.PAUSED, "p")
        assert await states(mesh) == WELL | {"progress": "warning"}
        await mesh.control(ref, Kind.RESUMED, "r")
        assert await states(mesh) == WELL

    mesh_test(1, body)


@pytest.mark.parametrize(
    ("outcome", "runs", "well"),
    [
        ("success", 0, True),
        ("no_action", 0, True),
        ("unresolved", 1, False),
        ("over_budget", 1, True),
        ("over_budget", 2, False),
        ("failed", 2, True),
        ("failed", 3, False),
        ("cancelled", 3, False),
    ],
)
def test_turns_without_progress_fail_the_check(outcome: RunOutcome, runs: int, *, well: bool) -> None:
    anchor = Anchor(
        workspace="w", session="s", agent="a@1", last_run_outcome=outcome, runs_without_progress=runs
    )
    assert (no_progress(anchor) == "") == well
    assert no_progress(replace(anchor, status="deleted")) == ""


def test_open_emergency_fails_the_check() -> None:
    emergency = OpenEmergency(
        "dead", "all are dead", "2026-01-01T00:00:00+00:00", "2026-01-01T00:01:00+00:00"
    )
    anchor = Anchor(workspace="w", session="s", agent="a@1", last_run_outcome="success", emergency=emergency)
    assert no_progress(anchor).startswith("emergency: all are dead (since 2026-01-01T00:00:00")


ROUTE = """
[[channel]]
name = "{name}"
kind = "file"
path = "notices.jsonl"
"""


@pytest.mark.parametrize(
    ("file", "state"),
    [
        ("", "warning"),
        (ROUTE.format(name="ops"), "passed"),
        (ROUTE.format(name="ops") + 'session = "s"', "warning"),
        (ROUTE.format(name="ops") + 'on = ["turn_ended"]', "warning"),
        ('[[channel]]\nname = "l"\nkind = "log"', "warning"),
    ],
)
def test_missing_channel_for_critical_is_a_warning(tmp_path: Path, file: str, state: str) -> None:
    path = tmp_path / "notify.toml"
    path.write_text(file)

    async def body(mesh: SimMesh) -> None:
        await mesh.open("notifier")
        check = await channels(mesh.bus)
        assert check.state == state, check
        assert ("ops (file)" in check.detail) == (state == "passed")

    mesh_test(1, body, notify=path if file else None)


def test_silent_notifier_fails_the_check() -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open()
        assert (await channels(mesh.bus)).state == "failed"

    mesh_test(1, body)


def test_journal_that_was_not_read_whole_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open()
        [check] = await doctor_journal.examine(mesh.bus)
        assert check.state == "passed"
        monkeypatch.setattr(doctor_journal, "READ_MAX", -1)
        [check] = await doctor_journal.examine(mesh.bus)
        assert check.state == "warning"
        assert "too many to read" in check.detail

    mesh_test(1, body)
