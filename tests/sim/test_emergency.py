"""Emergencies in the planner's real code: what keeps one open, what ends it, and that a death loses and doubles none."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.emergency import OpenEmergency
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import EndEmergency
from anchorwatch.core.times import iso
from anchorwatch.edges import Edge
from anchorwatch.models.port import Situation, StepDecision
from anchorwatch.testing.mesh import SimMesh

from tests.sim.test_planner import agent, mesh_test
from tests.sim.test_reset import reset
from tests.sim.test_showing import ask
from tests.support.packs import Sink

SEEN_AT_MS = 1_700_000_000_000
OPEN = OpenEmergency("w-1-dead", "w-1 is dead", iso(SEEN_AT_MS), iso(SEEN_AT_MS))


@dataclass
class Scene:
    """A session that only looks. ``known``: the open emergency as each step was shown it."""

    mesh: SimMesh
    ref: SessionRef
    sink: Sink
    known: list[OpenEmergency | None] = field(default_factory=list)

    def sees(self, **world: object) -> None:
        self.sink.set_world(**world)

    async def next_turn(self) -> Anchor:
        """The anchor after one more turn."""
        anchor = await self.mesh.anchor(self.ref)
        await self.mesh.say(self.ref, f"go-{anchor.run_count}", kind="trigger")
        return await self.mesh.until_rest(self.ref, anchor.run_count + 1, within_s=300)

    async def changes(self) -> list[str]:
        """What was recorded of emergencies, in order."""
        records = [each["record"] for each in await self.mesh.anchors(self.ref)]
        return [
            each["body"].get("change", "ended")
            for each in records
            if each["kind"] in (Kind.EMERGENCY_OBSERVED, Kind.EMERGENCY_ENDED)
        ]


def playing(tmp_path: Path, body: Callable[[Scene], Coroutine[Any, Any, None]], **world: object) -> None:
    async def main(mesh: SimMesh) -> None:
        def rules(situation: Situation) -> StepDecision:
            scene.known.append(situation.emergency)
            return StepDecision("looked")

        sink = Sink(tmp_path)
        sink.set_world(at_ms=SEEN_AT_MS, **world)
        spec = agent(tmp_path, rules, heartbeat_s=3_600)
        await mesh.open("planner", "observer")
        scene = Scene(mesh, await mesh.session("s", spec), sink)
        await body(scene)

    mesh_test(1, main)


def test_missing_telemetry_keeps_an_emergency_open(tmp_path: Path) -> None:
    """An emergency was seen, and nothing was done; then its source falls silent: that is not "nothing had to be done"."""

    async def body(scene: Scene) -> None:
        first = await scene.mesh.until_rest(scene.ref, 1)
        assert (first.last_run_outcome, first.runs_without_progress) == ("unresolved", 1)
        assert first.emergency == OPEN
        scene.sees()
        second = await scene.next_turn()
        assert (second.last_run_outcome, second.runs_without_progress) == ("unresolved", 2)
        assert (
            second.last_run_reason
            == f"w-1 is dead, as last seen at {iso(SEEN_AT_MS)}, and no action was taken"
        )
        await scene.mesh.processes["observer-1"].kill()
        third = await scene.next_turn()
        assert (third.last_run_outcome, third.runs_without_progress) == ("unresolved", 3)
        assert third.emergency == OPEN
        assert scene.known == [OPEN] * 3
        assert await scene.changes() == ["raised"]

    playing(tmp_path, body, dead="w-1")


def test_observation_without_it_ends_an_emergency(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        await scene.mesh.until_rest(scene.ref, 1)
        scene.sees(dead="w-2", at_ms=SEEN_AT_MS + 1)
        changed = (await scene.next_turn()).emergency
        assert changed is not None
        assert (changed.kind, changed.since) == ("w-2-dead", iso(SEEN_AT_MS))
        scene.sees(dead="", at_ms=SEEN_AT_MS + 2)
        over = await scene.next_turn()
        assert (over.last_run_outcome, over.runs_without_progress) == ("no_action", 0)
        assert over.emergency is None
        assert await scene.changes() == ["raised", "changed", "over"]

    playing(tmp_path, body, dead="w-1")


def test_requests_show_the_emergency_and_are_rendered_again(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        await scene.mesh.until_rest(scene.ref, 1)
        scene.sees()
        await scene.next_turn()
        for turn in ("1", "2"):
            assert (await ask(scene.mesh, "replay", turn=turn))["result"]["same"] is True
        shown = (await ask(scene.mesh, "context"))["result"]
        text = next(block["text"] for block in shown["blocks"] if block["name"] == "observation and task")
        assert f'as last seen at {iso(SEEN_AT_MS)}: "w-1 is dead"' in text

    playing(tmp_path, body, dead="w-1")


def test_emergency_survives_a_reset_and_new_processes(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        await scene.mesh.until_rest(scene.ref, 1)
        scene.sees()
        for process in scene.mesh.processes.values():
            await process.kill()
        await reset(scene.mesh, scene.ref, "k")
        for process in scene.mesh.processes.values():
            await process.start()
        after = await scene.mesh.until_rest(scene.ref, 2)
        assert (after.last_run_outcome, after.emergency) == ("unresolved", OPEN)

    playing(tmp_path, body, dead="w-1")


def test_person_ends_an_emergency_that_no_source_shows(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        await scene.mesh.until_rest(scene.ref, 1)
        scene.sees()

        def order(state: SessionState, id_: str) -> EndEmergency:
            del state
            return EndEmergency("ada", scene.mesh.server.now_ms(), "the rack is sold", control_id=id_)

        done = await scene.mesh.order(scene.ref, "k", order)
        assert (done.change.by, done.change.reason) == ("ada", "the rack is sold")
        after = await scene.next_turn()
        assert (after.last_run_outcome, after.emergency) == ("no_action", None)
        scene.sees(dead="w-1", at_ms=SEEN_AT_MS)
        assert (await scene.next_turn()).emergency == OPEN
        assert await scene.changes() == ["raised", "ended", "raised"]

    playing(tmp_path, body, dead="w-1")


@pytest.mark.parametrize(
    "edge",
    [
        Edge.PLANNER_EMERGENCY_BEFORE,
        Edge.PLANNER_EMERGENCY_AFTER,
        Edge.PLANNER_MODEL_BEFORE,
        Edge.PLANNER_END_BEFORE,
    ],
)
def test_planner_death_loses_and_doubles_no_emergency(tmp_path: Path, edge: Edge) -> None:
    async def body(scene: Scene) -> None:
        scene.mesh.watch.plan(edge, 1, lambda life: life.die_here())
        await scene.mesh.add("planner")
        after = await scene.mesh.until_rest(scene.ref, 1)
        assert after.emergency == OPEN
        assert await scene.changes() == ["raised"]
        assert not all(process.running for process in scene.mesh.processes.values()), "one died there"

    playing(tmp_path, body, dead="w-1")
