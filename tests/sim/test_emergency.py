"""Emergencies in the planner's real code: what keeps one open, what ends it, and that a death loses and doubles none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.core.agents import RULES, AgentSpec
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.emergency import OpenEmergency
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import EndEmergency
from anchorwatch.core.times import iso
from anchorwatch.edges import Edge
from anchorwatch.models.health import REST_MS_MAX
from anchorwatch.models.port import ContextOverflow, Model, ModelUnavailable, Situation, StepDecision
from anchorwatch.models.rules import RulesModel
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.subjects import parse_register
from anchorwatch_notifier.notices import Notice, read_notice
from anchorwatch_planner import main as planner

from tests.sim.test_fallback import Scripted
from tests.sim.test_planner import agent, mesh_test, obedient, once
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


def notices(mesh: SimMesh, ref: SessionRef) -> list[Notice]:
    """What people are notified of, in order."""
    records = [each for each in mesh.journal() if parse_register(each.subject).ref == ref]
    return [notice for each in records if (notice := read_notice(each)) is not None]


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


# --- without its model


@dataclass
class Away:
    """A session that acts by rules, of an agent whose language model does not answer."""

    mesh: SimMesh
    ref: SessionRef
    sink: Sink
    model: Scripted


def without_model(tmp_path: Path, body: Callable[[Away], Coroutine[Any, Any, None]], **changes: Any) -> None:
    path = tmp_path / "models.toml"
    path.write_text("[far]\nmodel_name = 'm-far'\n")
    model = Scripted("m-far", ModelUnavailable("it is away"))

    def build(settings: object, spec: AgentSpec, pack: Any) -> Model:
        del settings
        return RulesModel(pack.rules) if spec.model == RULES else model

    async def main(mesh: SimMesh) -> None:
        sink = Sink(tmp_path)
        sink.set_world(at_ms=SEEN_AT_MS, dead="w-1")
        spec = agent(tmp_path, once("fire"), model="far", heartbeat_s=3_600, **changes)
        await mesh.open(("planner", partial(planner.run, build=build)), "observer", ("executor", obedient))
        await body(Away(mesh, await mesh.session("s", spec), sink, model))

    mesh_test(1, main, models=path)


def test_rules_act_when_the_model_is_away_and_the_notice_says_so(tmp_path: Path) -> None:
    async def body(away: Away) -> None:
        anchor = await away.mesh.until_rest(away.ref, 1)
        assert (anchor.last_run_outcome, anchor.runs_by_rules) == ("success", 1)
        raised, ended = notices(away.mesh, away.ref)
        assert (raised.kinds, raised.severity, raised.data["change"]) == (
            ("emergency",),
            "critical",
            "raised",
        )
        assert "w-1 is dead" in raised.title
        (command,) = away.mesh.history(away.ref).commands
        assert raised.sequence < command.sequence, "before the model was called"
        assert (ended.kinds, ended.severity) == (("model_away", "turn_ended"), "warning")
        assert ended.title.endswith(
            "; the pack's rules decided, since no language model answers: far (model_unavailable)"
        )

    without_model(tmp_path, body)


def test_outage_is_a_notice_once_and_ends_with_an_answer(tmp_path: Path) -> None:
    async def body(away: Away) -> None:
        async def next_turn() -> Anchor:
            run = (await away.mesh.anchor(away.ref)).run_count + 1
            await away.mesh.say(away.ref, f"go-{run}", kind="trigger")
            return await away.mesh.until_rest(away.ref, run, within_s=300)

        await away.mesh.until_rest(away.ref, 1)
        # By now the model is skipped for a while, and is away all the same.
        assert (await next_turn()).runs_by_rules == 2
        away.sink.set_world(at_ms=SEEN_AT_MS, dead="w-2")
        assert (await next_turn()).runs_by_rules == 3
        told = notices(away.mesh, away.ref)
        assert sum("model_away" in each.kinds for each in told) == 1
        assert all("far (model_unavailable)" in each.title for each in told if "turn_ended" in each.kinds)
        (changed,) = [each for each in told if each.data.get("change") == "changed"]
        assert "the pack's rules decide (turns so far: 2)" in changed.text
        away.model.fault = None
        await asyncio.sleep(REST_MS_MAX / 1_000)
        assert (await next_turn()).runs_by_rules == 0

    without_model(tmp_path, body)


def test_agent_that_excludes_rules_is_left_to_people(tmp_path: Path) -> None:
    async def body(away: Away) -> None:
        anchor = await away.mesh.until_rest(away.ref, 1)
        assert (anchor.last_run_outcome, anchor.runs_by_rules) == ("failed", 0)
        assert [each.kinds[0] for each in notices(away.mesh, away.ref)] == ["emergency", "turn_failed"]

    without_model(tmp_path, body, fallbacks=())


def test_rules_do_not_decide_for_a_request_that_is_too_large(tmp_path: Path) -> None:
    async def body(away: Away) -> None:
        away.model.fault = ContextOverflow("too long", tokens=99_999)
        anchor = await away.mesh.until_rest(away.ref, 1)
        assert (anchor.last_run_outcome, anchor.runs_by_rules) == ("over_budget", 0)

    without_model(tmp_path, body)
