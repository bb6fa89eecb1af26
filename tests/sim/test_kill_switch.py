"""Kill switches: nothing starts while one is on, nothing is lost, and all goes on when it is turned off."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from anchorwatch.core.errors import IdempotencyConflict, Refused, Unavailable
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.orders import Asked
from anchorwatch.journal.switches import WHOLE, Scope, Switch, SwitchJournal
from anchorwatch.models.port import ProposedCall, Situation, StepDecision
from anchorwatch.testing.mesh import WORKSPACE, SimMesh
from anchorwatch.testing.process import LoopClock
from anchorwatch.topology.subjects import MESH
from anchorwatch_planner.switches import KillSwitches

from tests.sim.test_planner import agent, mesh_test
from tests.support.packs import Sink

FRESH_MS = 4_000_000_000_000
OF = {"session": "s", "agent": "bench", "workspace": WHOLE, "mesh": WHOLE}


def fire_by_run(situation: Situation) -> StepDecision:
    if situation.steps:
        return StepDecision("done")
    return StepDecision("", (ProposedCall("fire", {"item": f"run-{situation.run_id}"}),))


async def turn(mesh: SimMesh, scope: Scope, key: str, *, on: bool, body: str = "") -> tuple[Switch, bool]:
    journal = SwitchJournal(mesh.bus, mesh.committer, "outside")
    workspace = MESH if scope == "mesh" else WORKSPACE
    wanted = Switch(workspace, scope, OF[scope], on, "ada", mesh.server.now_ms())
    return await journal.turn(wanted, Asked(f"c-{key}", "ada", body or key))


async def claims(mesh: SimMesh, ref: SessionRef) -> int:
    return sum(subject.endswith(".claim") for _, subject, _ in await mesh.records(ref))


def test_switch_off_notice_is_repeated_where_the_bus_was_away() -> None:
    report: list[bool] = []

    async def released() -> None:
        report.append(len(report) > 0)
        if len(report) == 1:
            raise Unavailable("the bus is away")

    async def body(mesh: SimMesh) -> None:
        await mesh.open()
        await turn(mesh, "workspace", "on", on=True)
        board = KillSwitches(mesh.bus, LoopClock(mesh.server), mesh.log)
        await board.read()
        following = asyncio.create_task(board.follow(released))
        await turn(mesh, "workspace", "off", on=False)

        async def again() -> bool:
            return report == [False, True]

        await mesh.until(again, within_s=5)
        following.cancel()

    mesh_test(1, body)


@pytest.mark.parametrize("scope", ["session", "agent", "workspace", "mesh"])
@pytest.mark.parametrize("seed", range(2))
def test_switch_blocks_turns_while_on_and_all_goes_on_when_off(
    tmp_path: Path, scope: Scope, seed: int
) -> None:
    async def body(mesh: SimMesh) -> None:
        sink = Sink(tmp_path)
        sink.set_world(at_ms=FRESH_MS)
        await mesh.open("observer", "planner", "planner", "executor")
        spec = agent(tmp_path, fire_by_run, heartbeat_s=30)
        OF["agent"] = spec.name
        ref = await mesh.session("s", spec)
        await mesh.until_rest(ref, 1)
        await turn(mesh, scope, "on", on=True)
        for n in range(3):
            await mesh.say(ref, f"m{n}", kind="trigger")
        await asyncio.sleep(90)
        assert (await mesh.anchor(ref)).run_count == 1
        await mesh.processes["planner-1"].kill()
        await mesh.processes["planner-1"].start()
        await asyncio.sleep(20)
        assert (await mesh.anchor(ref)).run_count == 1, "a planner that has just started obeys it too"
        await turn(mesh, scope, "off", on=False)
        await mesh.until_rest(ref, 2, within_s=5)

    mesh_test(seed, body)


@pytest.mark.parametrize("seed", range(4))
def test_command_decided_before_the_switch_runs_once_it_is_off(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        sink = Sink(tmp_path)
        sink.set_world(at_ms=FRESH_MS)
        await mesh.open("observer", "planner", "executor")
        ref = await mesh.session("s", agent(tmp_path, fire_by_run, heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        await mesh.processes["executor-1"].kill()
        await mesh.say(ref, "m", kind="trigger")

        async def decided() -> bool:
            state = await mesh.sessions.load(ref, 0)
            return state.turn is not None and bool(state.turn.steps)

        await mesh.until(decided)
        await turn(mesh, "session", "on", on=True)
        await mesh.processes["executor-1"].start()
        await asyncio.sleep(60)
        assert [effect["item"] for effect in sink.effects()] == ["run-1"]
        assert await claims(mesh, ref) <= 4, "waiting does not fill the journal"
        await turn(mesh, "session", "off", on=False)
        await mesh.until_rest(ref, 2, within_s=30)
        assert [effect["item"] for effect in sink.effects()] == ["run-1", "run-2"]

    mesh_test(seed, body)


def test_switch_turns_once_a_key_and_never_to_its_own_state(tmp_path: Path) -> None:
    del tmp_path

    async def body(mesh: SimMesh) -> None:
        await mesh.open()
        first, replayed = await turn(mesh, "workspace", "k", on=True)
        assert (first.on, first.by, replayed) == (True, "ada", False)
        await turn(mesh, "workspace", "k2", on=False)
        again, replayed = await turn(mesh, "workspace", "k", on=True)
        assert (again, replayed) == (first, True)
        with pytest.raises(IdempotencyConflict):
            await turn(mesh, "workspace", "k", on=True, body="other")
        with pytest.raises(Refused, match="off"):
            await turn(mesh, "workspace", "k3", on=False)
        standing = await SwitchJournal(mesh.bus, mesh.committer, "x").all(WORKSPACE)
        assert [(each.scope, each.on) for each in standing] == [("workspace", False)]

    mesh_test(1, body)
