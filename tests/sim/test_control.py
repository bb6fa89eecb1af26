"""What people order while turns are under way: the planner's real code on the bus in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Reset, Steer
from anchorwatch.core.times import from_iso
from anchorwatch.models.port import ProposedCall, Situation, StepDecision
from anchorwatch.testing.mesh import SimMesh

from tests.sim.test_planner import Decide, agent, mesh_test, obedient, once
from tests.support.packs import Sink


def listening(heard: list[tuple[int, list[str]]]) -> Decide:
    """Fire once in each turn, and note what each step was shown."""

    def rules(situation: Situation) -> StepDecision:
        heard.append((situation.run_id, [str(wake["text"]) for wake in situation.wakes if wake["text"]]))
        if situation.steps:
            return StepDecision("done")
        return StepDecision("", (ProposedCall("fire", {"item": "x"}),))

    return rules


async def in_flight(mesh: SimMesh, ref: SessionRef, run: int) -> str:
    """Wait until a command of that turn stands in the journal; returns the turn's id."""

    async def there() -> bool:
        state = await mesh.sessions.load(ref, 0)
        return state.turn is not None and state.turn.run_id == run and not state.turn.settled

    await mesh.until(there)
    turn = (await mesh.anchor(ref)).turn
    assert turn is not None
    return turn.id


@pytest.mark.parametrize("seed", range(4))
def test_message_to_a_running_turn_is_heard_at_its_next_step(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        heard: list[tuple[int, list[str]]] = []
        await mesh.open("planner", "planner", ("executor", obedient))
        ref = await mesh.session("s", agent(tmp_path, listening(heard), heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        await mesh.processes["executor-1"].kill()
        await mesh.say(ref, "m", "go", kind="trigger")
        turn_id = await in_flight(mesh, ref, 2)
        now_ms = mesh.server.now_ms()
        await mesh.order(ref, "k", lambda _, id_: Steer("ada", now_ms, turn_id, "not that one", id_))
        await mesh.processes["executor-1"].start()
        await mesh.until_rest(ref, 2)
        assert (2, ["go", "not that one"]) in heard
        await asyncio.sleep(30)
        assert (await mesh.anchor(ref)).run_count == 2, "it is no wake of another turn"

    mesh_test(seed, body)


@pytest.mark.parametrize("seed", range(4))
def test_urgent_message_joins_only_the_running_turn(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        heard: list[tuple[int, list[str]]] = []
        await mesh.open("planner", ("executor", obedient))
        ref = await mesh.session("s", agent(tmp_path, listening(heard), heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        await mesh.processes["executor-1"].kill()
        await mesh.say(ref, "t", "go", kind="trigger")
        await in_flight(mesh, ref, 2)
        await mesh.say(ref, "e", "something happened", kind="event", priority=1)
        urgent = await mesh.say(ref, "m", "and look at the disk")
        await asyncio.sleep(1)
        await mesh.processes["executor-1"].start()
        await mesh.until_rest(ref, 2)
        assert (2, ["go", "and look at the disk"]) in heard
        assert (await mesh.anchor(ref)).inputs_joined == (urgent.sequence,)
        await mesh.until_rest(ref, 3, within_s=30)
        later = [text for run, texts in heard if run == 3 for text in texts]
        assert "something happened" in later, "an event waits for the next turn"
        assert "and look at the disk" not in later

    mesh_test(seed, body)


@pytest.mark.parametrize("seed", range(4))
def test_paused_turn_goes_on_whichever_planner_hears_the_resume(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "planner", "planner", ("executor", obedient))
        ref = await mesh.session("s", agent(tmp_path, once("fire"), heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        for run in range(2, 5):
            await mesh.processes["executor-1"].kill()
            await mesh.say(ref, f"m{run}", kind="trigger")
            await in_flight(mesh, ref, run)
            await mesh.control(ref, Kind.PAUSED, f"p{run}")
            await mesh.processes["executor-1"].start()
            await asyncio.sleep(20)
            assert (await mesh.anchor(ref)).run_count == run - 1, "it waits"
            await mesh.control(ref, Kind.RESUMED, f"r{run}")
            await mesh.until_rest(ref, run, within_s=5)

    mesh_test(seed, body, sweep_s=3600)


@pytest.mark.parametrize("seed", range(4))
def test_cancelled_turn_consumes_its_inputs_and_session_wakes(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "planner", ("executor", obedient))
        ref = await mesh.session("s", agent(tmp_path, once("fire"), heartbeat_s=90))
        await mesh.until_rest(ref, 1)
        await mesh.processes["executor-1"].kill()
        await mesh.say(ref, "m", "once only", kind="trigger")
        turn_id = await in_flight(mesh, ref, 2)
        await mesh.control(ref, Kind.CANCELLED, "k", turn_id)
        anchor = await mesh.anchor(ref)
        assert (anchor.status, anchor.last_run_outcome, anchor.run_count) == ("idle", "cancelled", 2)
        await mesh.processes["executor-1"].start()
        await asyncio.sleep(40)
        assert (await mesh.anchor(ref)).run_count == 2, "what it took does not run again"
        await mesh.until_rest(ref, 3, within_s=60)
        kinds = [each["record"]["kind"] for each in await mesh.anchors(ref)]
        assert kinds.count(Kind.CANCELLED) == 1

    mesh_test(seed, body)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_hundred_resets_under_load_keep_inputs_and_run_ids(tmp_path: Path, seed: int) -> None:
    resets = 100 if seed == 0 else 12

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "planner", ("executor", obedient))
        ref = await mesh.session("s", agent(tmp_path, once("fire"), heartbeat_s=60))
        await mesh.until_rest(ref, 1)
        said: list[int] = []

        def reset(state: SessionState, id_: str) -> Reset:
            return Reset("ada", mesh.server.now_ms(), state.read_through, control_id=id_)

        async def talk() -> None:
            for n in range(resets * 2):
                kind, priority = (("event", 1), ("message", 0), ("trigger", 0))[n % 3]
                said.append((await mesh.say(ref, f"i{n}", f"t{n}", priority, kind)).sequence)
                await asyncio.sleep(0.03 + 0.11 * ((n * 7 + seed) % 5))

        talking = asyncio.create_task(talk())
        for n in range(resets):
            await asyncio.sleep(0.2 + 0.07 * ((n + seed) % 7))
            await mesh.order(ref, f"r{n}", reset)
        await talking
        await mesh.say(ref, "last", kind="trigger")
        await asyncio.sleep(60)
        anchor = await mesh.until_rest(ref, 2)
        state = await mesh.sessions.load(ref, 0)
        assert anchor.reset_count == resets
        assert state.pending == ()
        assert anchor.inputs_through >= max(said)
        ids = [each["run_id"] for each in await mesh.anchors(ref)]
        assert ids == sorted(ids)
        assert anchor.run_id == anchor.run_count

    mesh_test(seed, body, debounce_p0_s=0.5, debounce_p1_s=1)


@pytest.mark.slow
def test_circling_session_is_not_a_success_and_slows_down(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        Sink(tmp_path).set_world(at_ms=4_000_000_000_000)
        await mesh.open("observer", "planner", ("executor", obedient))
        ref = await mesh.session("s", agent(tmp_path, once("fire"), heartbeat_s=300))
        outcomes: list[str | None] = []
        for run in range(1, 8):
            anchor = await mesh.until_rest(ref, run, within_s=400)
            outcomes.append(anchor.last_run_outcome)
        assert outcomes == ["success"] * 4 + ["unresolved"] * 3
        assert "7 turns in a row" in anchor.last_run_reason
        ended = [each for each in await mesh.anchors(ref) if each["record"]["kind"] == Kind.TURN_ENDED][-3:]
        waits = [from_iso(each["next_check_at"]) - each["record"]["at_ms"] for each in ended]
        assert waits == sorted(waits)
        assert waits[0] < waits[-1]

    mesh_test(11, body)
