"""A session that cannot be looked at is said once, waits with its inputs, and goes on by itself once it can."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.errors import NotFound
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.tools import ToolSpec
from anchorwatch.journal.inputs import Receipt
from anchorwatch.models.port import Situation, StepDecision
from anchorwatch.packs import registry
from anchorwatch.testing.mesh import SimMesh
from anchorwatch_planner.workers import WAKES

from tests.sim.test_quarantine import last_of_kind, quarantined, rot
from tests.support.letters import PoisonPack, in_state, letters, mesh_test, only_letter, order
from tests.support.packs import bench_agent


class MissingPack(PoisonPack):
    """A pack that whoever runs it cannot load while ``missing``."""

    name = "missing"
    missing = False

    def tools(self, agent: AgentSpec) -> Sequence[ToolSpec]:
        if self.missing:
            raise NotFound("unknown pack 'missing'")
        return super().tools(agent)


async def open_letter(mesh: SimMesh) -> None:
    await mesh.until(in_state(mesh.bus, "open"), within_s=400)


def test_session_without_its_pack_has_one_letter_and_recovers(tmp_path: Path) -> None:
    pack = MissingPack()
    registry.register(pack)

    async def body(mesh: SimMesh) -> None:
        await mesh.open("executor")
        ref = await mesh.session("s", bench_agent(tmp_path, pack="missing", heartbeat_s=3600))
        pack.missing = True
        await mesh.add("planner")
        for n in range(300):
            last = await mesh.say(ref, f"m{n}", kind="trigger")
            await asyncio.sleep(1)
        await open_letter(mesh)
        letter = await only_letter(mesh.bus)
        assert letter is not None
        assert (letter.address.letter_id, letter.address.session, letter.tries) == ("planner-s", "s", 8)
        assert letter.fault.text.startswith("unknown pack 'missing'")
        await asyncio.sleep(300)
        assert (await mesh.bus.consumer_states("JOURNAL_0"))["planner"].ack_pending == 0
        state = await mesh.sessions.load(ref, 0)
        assert len(state.pending) + (len(state.turn.inputs) if state.turn else 0) >= 300, "its inputs wait"
        pack.missing = False
        anchor = await mesh.until_rest(ref, 1, within_s=60)
        await mesh.until(in_state(mesh.bus, "done"), within_s=60)
        assert anchor.inputs_through >= last.sequence

    mesh_test(body)


def test_letter_retry_is_immediate_and_drop_silent_until_health(
    tmp_path: Path,
) -> None:
    pack = MissingPack()
    registry.register(pack)

    async def body(mesh: SimMesh) -> None:
        await mesh.open("executor")
        ref = await mesh.session("s", bench_agent(tmp_path, pack="missing", heartbeat_s=3600))
        pack.missing = True
        await mesh.add("planner")
        await open_letter(mesh)
        letter = await only_letter(mesh.bus)
        assert letter is not None
        await order(mesh.bus, letter, "retry", mesh.server.now_ms(), "r")
        await mesh.until(in_state(mesh.bus, "open", 2), within_s=400)
        await order(mesh.bus, letter, "drop", mesh.server.now_ms(), "d")
        await asyncio.sleep(600)
        assert await in_state(mesh.bus, "dropped", 2)()
        pack.missing = False
        await mesh.until_rest(ref, 1, within_s=60)
        await mesh.until(in_state(mesh.bus, "done"), within_s=60)
        pack.missing = True
        await mesh.processes["planner-1"].kill()
        await mesh.processes["planner-1"].start()
        await mesh.say(ref, "later", kind="trigger")
        await mesh.until(in_state(mesh.bus, "open"), within_s=400)

    mesh_test(body)


def test_turn_that_one_planner_of_two_cannot_run_is_not_stuck(tmp_path: Path) -> None:
    """Whoever holds the turn looks again, whichever of them sweeps."""
    pack = MissingPack()
    registry.register(pack)

    async def body(mesh: SimMesh) -> None:
        await mesh.open("executor")
        ref = await mesh.session("s", bench_agent(tmp_path, pack="missing", heartbeat_s=3600))
        pack.missing = True
        await mesh.add("planner")
        await mesh.add("planner")
        await open_letter(mesh)
        await asyncio.sleep(120)
        pack.missing = False
        await mesh.until_rest(ref, 1, within_s=60)
        await mesh.until(in_state(mesh.bus, "done"), within_s=60)

    mesh_test(body)


async def open_with_a_letter(mesh: SimMesh, tmp_path: Path, pack: MissingPack) -> SessionRef:
    """A session with an input that is due, and with a letter that is tried again."""
    await mesh.open("executor")
    ref = await mesh.session("s", bench_agent(tmp_path, pack="missing", heartbeat_s=3600))
    pack.missing = True
    await mesh.add("planner")
    await mesh.until(in_state(mesh.bus, "failing"), within_s=30)
    return ref


@pytest.mark.parametrize("late", [False, True], ids=["waiting", "accepted-late"])
def test_letter_is_done_once_its_session_is_deleted(tmp_path: Path, *, late: bool) -> None:
    """Inputs of a deleted session are refused: no turn takes them, so the letter must not wait for one."""
    pack = MissingPack()
    registry.register(pack)

    async def body(mesh: SimMesh) -> None:
        ref = await open_with_a_letter(mesh, tmp_path, pack)
        await mesh.control(ref, Kind.DELETED, "delete")
        if late:
            await mesh.say(ref, "late", kind="trigger")
        await mesh.until(in_state(mesh.bus, "done"), within_s=60)
        assert (await mesh.sessions.load(ref, 0)).pending == ()

    mesh_test(body)


def test_letter_is_done_once_its_session_is_quarantined(tmp_path: Path) -> None:
    """Damage is reported by the quarantine; the letter does not count it as one more failure."""
    pack = MissingPack()
    registry.register(pack)

    async def body(mesh: SimMesh) -> None:
        ref = await open_with_a_letter(mesh, tmp_path, pack)
        rot(mesh, last_of_kind(mesh, ref, "input"))
        await mesh.processes["planner-1"].kill()
        await mesh.processes["planner-1"].start()
        await quarantined(mesh, ref)
        await mesh.until(in_state(mesh.bus, "done"), within_s=60)
        letter = await only_letter(mesh.bus)
        assert letter is not None
        assert letter.fault.text.startswith("unknown pack 'missing'")

    mesh_test(body, sweep_s=5)


def test_letter_is_done_while_an_input_waits_for_the_check(tmp_path: Path) -> None:
    """An input of P2 waits for the next check: nothing is due, so the session goes on."""
    pack = MissingPack()
    registry.register(pack)
    saying: list[asyncio.Task[Receipt]] = []

    async def body(mesh: SimMesh) -> None:
        ref = await open_with_a_letter(mesh, tmp_path, pack)

        def say_later(situation: Situation) -> StepDecision:
            saying.append(asyncio.create_task(mesh.say(ref, f"m{situation.run_id}", priority=2)))
            return StepDecision("done")

        pack.rules = say_later  # type: ignore[method-assign]
        pack.missing = False
        await mesh.until_rest(ref, 1, within_s=30)
        await mesh.until(in_state(mesh.bus, "done"), within_s=60)
        (receipt,) = [await task for task in saying]
        assert [each.sequence for each in (await mesh.sessions.load(ref, 0)).pending] == [receipt.sequence]

    mesh_test(body)


@pytest.mark.parametrize("seed", range(2))
def test_session_that_ends_its_planner_is_isolated_from_others(tmp_path: Path, seed: int) -> None:
    good, deadly = PoisonPack(), PoisonPack()
    deadly.name = "deadly"
    dying: list[asyncio.Task[None]] = []
    for pack in (good, deadly):
        registry.register(pack)

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor")
        planner = mesh.processes["planner-1"]

        def kill(situation: Situation) -> StepDecision:
            dying.append(asyncio.create_task(planner.kill()))
            raise asyncio.CancelledError(str(situation.run_id))

        deadly.rules = kill  # type: ignore[method-assign]
        bad = await mesh.session("bad", bench_agent(tmp_path, name="bad", pack="deadly", heartbeat_s=3600))
        well = await mesh.session("well", bench_agent(tmp_path, pack="poison", heartbeat_s=3600))

        async def parked() -> bool:
            if not planner.running:
                await planner.start()
            return any(each.state == "open" for each in await letters(mesh.bus))

        await mesh.until(parked, within_s=300)
        letter = next(each for each in await letters(mesh.bus) if each.state == "open")
        assert (letter.address.letter_id, letter.fault.code) == ("planner-bad", "crashed")
        deaths = len(dying)
        if not planner.running:
            await planner.start()
        runs = (await mesh.anchor(well)).run_count
        for n in range(3):
            await mesh.say(well, f"m{n}", kind="trigger")
            await mesh.until_rest(well, runs + n + 1, within_s=30)
        await mesh.say(bad, "m", kind="trigger")
        await asyncio.sleep(120)
        assert len(dying) == deaths, "it is left alone"
        assert (await (await mesh.bus.consumer(WAKES)).state()).ack_pending == 0

    mesh_test(body, seed)
