"""An item that cannot be handled is set aside, retried, and at last shown to people; later items pass meanwhile.

The tests with a parameter ``kind`` hold for every service (tests/sim/poison.py); the others for the service that they name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.codec import decode
from anchorwatch.core.letters import DeadLetter
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.edges import Edge
from anchorwatch.journal.inputs import Receipt, accept, accept_together
from anchorwatch.models.port import Situation, StepDecision
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.testing.process import Life
from anchorwatch.topology.streams import journal_stream

from tests.sim.poison import (
    KILLERS,
    POISONS,
    Killer,
    MissingPack,
    Poison,
    PoisonCommand,
    PoisonEvent,
    PoisonRecord,
    PoisonSession,
    agent_of,
    ask_memory,
    blamed,
    input_of,
    inputs_of,
    outcomes,
    publish_event,
    session_without_pack,
    subscribed_session,
)
from tests.sim.test_quarantine import last_of_kind, quarantined, rot
from tests.support.letters import PoisonPack, in_state, letters, mesh_test, only_letter, order
from tests.support.packs import Sink

OPEN_S_MAX = 400.0
"""Within this time all tries are over."""


async def the_letter(mesh: SimMesh) -> DeadLetter:
    letter = await only_letter(mesh.bus)
    assert letter is not None
    return letter


def service_of(kind: type[Poison | Killer]) -> str:
    return kind.service


# ------------------------------------------------------------ every service


@pytest.mark.parametrize("kind", POISONS, ids=service_of)
def test_poison_is_shown_and_a_thousand_later_items_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Poison]
) -> None:
    async def body(mesh: SimMesh) -> None:
        poison = kind(mesh, tmp_path, monkeypatch)
        await poison.open()
        await poison.send()
        passed = await poison.flood(1_000)
        started_ms = mesh.server.now_ms()
        await mesh.until(passed, within_s=100)
        await mesh.until(poison.is_acked, within_s=30)
        await mesh.until(in_state(mesh.bus, "open"), within_s=OPEN_S_MAX)
        letter = await the_letter(mesh)
        assert (letter.address.letter_id, letter.fault.code, letter.tries) == (
            poison.letter_id, kind.code, kind.tries
        )  # fmt: skip
        if kind.tries > 1:
            assert mesh.server.now_ms() - started_ms > 60_000, "an outage of a minute is not a poison"

    mesh_test(body)


@pytest.mark.parametrize("kind", [PoisonEvent, PoisonRecord, PoisonSession], ids=service_of)
def test_retried_letter_reopens_and_is_done_once_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Poison]
) -> None:
    """A command differs: its letter opens with an outcome, which is final."""

    async def body(mesh: SimMesh) -> None:
        poison = kind(mesh, tmp_path, monkeypatch)
        await poison.open()
        await poison.send()
        await mesh.until(in_state(mesh.bus, "open", 1), within_s=OPEN_S_MAX)
        # The letter is durable: the next process continues with it.
        await mesh.processes[f"{kind.service}-1"].kill()
        await mesh.processes[f"{kind.service}-1"].start()
        await order(mesh.bus, await the_letter(mesh), "retry", mesh.server.now_ms(), "first")
        await mesh.until(in_state(mesh.bus, "open", 2), within_s=OPEN_S_MAX)
        letter = await the_letter(mesh)
        assert [action.key for action in letter.actions] == ["first"]
        await poison.repair()
        await order(mesh.bus, letter, "retry", mesh.server.now_ms(), "second")
        await mesh.until(in_state(mesh.bus, "done"), within_s=60)
        await mesh.until(poison.handled, within_s=30)

    mesh_test(body)


@pytest.mark.parametrize(
    ("kind", "edge"),
    [
        (PoisonEvent, Edge.OBSERVER_LETTER_BEFORE),
        (PoisonCommand, Edge.EXECUTOR_LETTER_BEFORE),
        (PoisonCommand, Edge.EXECUTOR_OUTCOME_BEFORE),
        (PoisonSession, Edge.PLANNER_LETTER_BEFORE),
    ],
    ids=str,
)
def test_letter_that_cannot_be_written_at_first_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Poison], edge: Edge
) -> None:
    def fail(_: Life) -> None:
        raise ZeroDivisionError("a defect in setting an item aside")

    async def body(mesh: SimMesh) -> None:
        poison = kind(mesh, tmp_path, monkeypatch)
        for reach in (1, 2):
            mesh.watch.plan(edge, reach, fail)
        await poison.open()
        await poison.send()
        await mesh.until(in_state(mesh.bus, "open"), within_s=OPEN_S_MAX)
        if isinstance(poison, PoisonCommand):
            await mesh.until(poison.is_refused, within_s=OPEN_S_MAX)
        assert mesh.watch.reached[edge] > 2, "both faults occurred"
        assert mesh.crashes == []

    mesh_test(body)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KILLERS, ids=service_of)
def test_item_that_ends_its_process_is_the_only_one_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Killer], seed: int
) -> None:
    async def body(mesh: SimMesh) -> None:
        killer = kind(mesh, tmp_path, monkeypatch)
        await killer.open()

        async def settled() -> bool:
            await killer.revive()
            shown = any(each.state == "open" for each in await letters(mesh.bus))
            return shown and await killer.passed()

        await mesh.until(settled, within_s=600)
        assert await blamed(mesh) == [f"open {killer.letter_id}"]
        assert [each.fault.code for each in await letters(mesh.bus) if each.state == "open"] == ["crashed"]
        assert len(killer.deaths) >= 8
        await killer.after()

    mesh_test(body, seed)


# ------------------------------------------------------------ observer


def test_outage_does_not_count_however_long_it_lasts(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("observer")
        ref = await subscribed_session(mesh, tmp_path)
        observer = mesh.processes["observer-1"]
        for n in range(5):
            await publish_event(mesh, f"e-{n}")
            observer.cut()
            await asyncio.sleep(120)
            observer.reconnect()
            await asyncio.sleep(20)

        async def all_through() -> bool:
            return await inputs_of(mesh, ref) == 5

        await mesh.until(all_through)
        assert await letters(mesh.bus) == []

    mesh_test(body)


def test_letter_whose_observer_dies_repeatedly_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(mesh: SimMesh) -> None:
        poison = PoisonEvent(mesh, tmp_path, monkeypatch)
        await poison.open()
        await poison.send()
        observer = mesh.processes["observer-1"]
        for n in range(30):
            await asyncio.sleep(0.37 * (n % 5))
            await observer.kill()
            await observer.start()

        await mesh.until(in_state(mesh.bus, "open"), within_s=600)

    mesh_test(body)


def test_defect_in_one_of_several_events_ends_no_observer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(*ids: str) -> None:
        if input_of("bad") in ids:
            raise RuntimeError("a defect")

    async def checked_together(committer: Any, ref: Any, given: Any, **named: Any) -> None:
        check(*(id_ for id_, _ in given))
        await accept_together(committer, ref, given, **named)

    async def checked(committer: Any, ref: Any, id_: str, *arguments: Any, **named: Any) -> Any:
        check(id_)
        return await accept(committer, ref, id_, *arguments, **named)

    async def body(mesh: SimMesh) -> None:
        await mesh.open("observer")
        ref = await subscribed_session(mesh, tmp_path)
        await mesh.processes["observer-1"].kill()
        monkeypatch.setattr("anchorwatch_observer.routing.accept", checked)
        monkeypatch.setattr("anchorwatch_observer.routing.accept_together", checked_together)
        for id_ in ("a", "bad", "b"):
            await publish_event(mesh, id_)
        await mesh.processes["observer-1"].start()

        async def others_through() -> bool:
            return await inputs_of(mesh, ref) == 2

        await mesh.until(others_through, within_s=20)
        await mesh.until(in_state(mesh.bus, "open"), within_s=300)
        assert mesh.crashes == []

    mesh_test(body)


# ------------------------------------------------------------ executor


def commanded(
    tmp_path: Path, pack: PoisonPack, body: Callable[[SimMesh, SessionRef], Coroutine[Any, Any, None]]
) -> None:
    """Run ``body`` with a session ``s`` that decides one command of the pack in each turn."""

    async def opened(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor")
        await body(mesh, await mesh.session("s", agent_of(tmp_path, pack)))

    mesh_test(opened)


def broken_pack() -> PoisonPack:
    pack = PoisonPack()
    pack.broken = True
    return pack


def test_unhandleable_command_is_refused_and_its_turn_continues(tmp_path: Path) -> None:
    async def body(mesh: SimMesh, ref: SessionRef) -> None:
        await mesh.until(in_state(mesh.bus, "failing"), within_s=10)
        assert (await mesh.anchor(ref)).status == "active", "it waits while a try may succeed"
        anchor = await mesh.until_rest(ref, 1, within_s=300)
        assert anchor.run_count == 1
        (done,) = await outcomes(mesh, ref)
        assert (done.state, done.rule) == ("refused", "dead_letter")
        assert "this pack cannot connect" in done.text
        letter = await the_letter(mesh)
        assert (letter.state, letter.tries, letter.address.session) == ("open", 8, "s")
        assert letter.address.letter_id == "executor-s-1-1-1"
        assert Sink(tmp_path).effects() == []

    commanded(tmp_path, broken_pack(), body)


def test_retried_refused_command_is_decided_again_and_done_once(tmp_path: Path) -> None:
    pack = broken_pack()

    async def body(mesh: SimMesh, ref: SessionRef) -> None:
        await mesh.until_rest(ref, 1, within_s=300)
        pack.broken = False
        letter = await the_letter(mesh)
        for _ in range(3):
            await order(mesh.bus, letter, "retry", mesh.server.now_ms(), "one key")
        await mesh.until_rest(ref, 2, within_s=30)
        assert await in_state(mesh.bus, "done")()
        await asyncio.sleep(60)
        states = [each.state for each in await outcomes(mesh, ref)]
        assert states == ["refused", *["succeeded"] * (len(states) - 1)]
        assert Sink(tmp_path).effects("r1") == []
        assert len(Sink(tmp_path).effects()) == len(states) - 1
        (trigger,) = [
            decode(payload).body
            for _, subject, payload in await mesh.records(ref)
            if subject.startswith("in.dl-")
        ]
        assert (trigger["kind"], trigger["by"]) == ("trigger", "a person")

    commanded(tmp_path, pack, body)


def test_claimed_command_that_cannot_be_handled_is_unknown(tmp_path: Path) -> None:
    """It was started, its executor died, and no other executor can connect to find out."""
    pack = PoisonPack()
    hanging = asyncio.Event()

    async def hang() -> None:
        hanging.set()
        await asyncio.sleep(3600)

    pack.deadly = hang

    async def body(mesh: SimMesh, ref: SessionRef) -> None:
        executor = mesh.processes["executor-1"]
        await asyncio.wait_for(hanging.wait(), 30)
        await executor.kill()
        pack.broken = True
        await executor.start()
        await mesh.until_rest(ref, 1, within_s=300)
        (done,) = await outcomes(mesh, ref)
        assert (done.state, done.error) == ("unknown", "dead_letter")

    commanded(tmp_path, pack, body)


def test_dropped_letter_ends_its_command_without_a_retry(tmp_path: Path) -> None:
    pack = broken_pack()

    async def body(mesh: SimMesh, ref: SessionRef) -> None:
        await mesh.until(in_state(mesh.bus, "failing"), within_s=10)
        await order(mesh.bus, await the_letter(mesh), "drop", mesh.server.now_ms())
        pack.broken = False
        await mesh.until_rest(ref, 1, within_s=10)
        (done,) = await outcomes(mesh, ref)
        assert (done.state, done.rule) == ("refused", "dead_letter")
        await asyncio.sleep(120)
        assert Sink(tmp_path).effects("r1") == []
        assert await in_state(mesh.bus, "dropped")()

    commanded(tmp_path, pack, body)


# ------------------------------------------------------------ memory


def test_record_that_memory_cannot_enter_is_in_the_timeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(mesh: SimMesh) -> None:
        poison = PoisonRecord(mesh, tmp_path, monkeypatch)
        await poison.open()
        await poison.send()
        await mesh.until(in_state(mesh.bus, "open"), within_s=10)
        assert (await the_letter(mesh)).address.session == "bad"
        (line,) = [
            entry
            for entry in (await ask_memory(mesh, "timeline", session="bad", limit=100))["data"]
            if entry["kind"] == "fault"
        ]
        assert line["sequence"] == poison.sequence
        assert "AssertionError" in line["why"]

    mesh_test(body)


# ------------------------------------------------------------ planner


def packless(
    tmp_path: Path,
    body: Callable[[SimMesh, SessionRef, MissingPack], Coroutine[Any, Any, None]],
    **settings: Any,
) -> None:
    """Run ``body`` with a session ``s`` that cannot run a turn, since its pack is missing."""

    async def opened(mesh: SimMesh) -> None:
        await body(mesh, *await session_without_pack(mesh, tmp_path))

    mesh_test(opened, **settings)


def test_session_without_its_pack_has_one_letter_and_recovers(tmp_path: Path) -> None:
    async def body(mesh: SimMesh, ref: SessionRef, pack: MissingPack) -> None:
        for n in range(300):
            last = await mesh.say(ref, f"m{n}", kind="trigger")
            await asyncio.sleep(1)
        await mesh.until(in_state(mesh.bus, "open"), within_s=OPEN_S_MAX)
        letter = await the_letter(mesh)
        assert (letter.address.letter_id, letter.address.session, letter.tries) == ("planner-s", "s", 8)
        assert letter.fault.text.startswith("unknown pack 'missing'")
        await asyncio.sleep(300)
        assert (await mesh.bus.consumer_states(journal_stream()))["planner"].ack_pending == 0
        state = await mesh.sessions.load(ref, 0)
        assert len(state.pending) + (len(state.turn.inputs) if state.turn else 0) >= 300, "its inputs wait"
        pack.missing = False
        anchor = await mesh.until_rest(ref, 1, within_s=60)
        await mesh.until(in_state(mesh.bus, "done"), within_s=60)
        assert anchor.inputs_through >= last.sequence

    packless(tmp_path, body)


def test_dropped_session_letter_opens_only_after_recovery(tmp_path: Path) -> None:
    async def body(mesh: SimMesh, ref: SessionRef, pack: MissingPack) -> None:
        await mesh.until(in_state(mesh.bus, "open"), within_s=OPEN_S_MAX)
        await order(mesh.bus, await the_letter(mesh), "drop", mesh.server.now_ms(), "d")
        await asyncio.sleep(600)
        assert await in_state(mesh.bus, "dropped", 1)()
        pack.missing = False
        await mesh.until_rest(ref, 1, within_s=60)
        await mesh.until(in_state(mesh.bus, "done"), within_s=60)
        pack.missing = True
        await mesh.processes["planner-1"].kill()
        await mesh.processes["planner-1"].start()
        await mesh.say(ref, "later", kind="trigger")
        await mesh.until(in_state(mesh.bus, "open"), within_s=OPEN_S_MAX)

    packless(tmp_path, body)


def test_turn_that_one_planner_of_two_cannot_run_is_not_stuck(tmp_path: Path) -> None:
    """The planner that holds the turn retries it, also when the other one sweeps."""

    async def body(mesh: SimMesh, ref: SessionRef, pack: MissingPack) -> None:
        await mesh.add("planner")
        await mesh.until(in_state(mesh.bus, "open"), within_s=OPEN_S_MAX)
        await asyncio.sleep(120)
        pack.missing = False
        await mesh.until_rest(ref, 1, within_s=60)
        await mesh.until(in_state(mesh.bus, "done"), within_s=60)

    packless(tmp_path, body)


@pytest.mark.parametrize("late", [False, True], ids=["waiting", "accepted-late"])
def test_letter_is_done_once_its_session_is_deleted(tmp_path: Path, *, late: bool) -> None:
    """Inputs of a deleted session are refused: no turn takes them, so the letter must not wait for one."""

    async def body(mesh: SimMesh, ref: SessionRef, _: MissingPack) -> None:
        await mesh.until(in_state(mesh.bus, "failing"), within_s=30)
        await mesh.control(ref, Kind.DELETED, "delete")
        if late:
            await mesh.say(ref, "late", kind="trigger")
        await mesh.until(in_state(mesh.bus, "done"), within_s=60)
        assert (await mesh.sessions.load(ref, 0)).pending == ()

    packless(tmp_path, body)


def test_letter_is_done_once_its_session_is_quarantined(tmp_path: Path) -> None:
    """Damage is reported by the quarantine; the letter does not count it as one more failure."""

    async def body(mesh: SimMesh, ref: SessionRef, _: MissingPack) -> None:
        await mesh.until(in_state(mesh.bus, "failing"), within_s=30)
        rot(mesh, last_of_kind(mesh, ref, "input"))
        await mesh.processes["planner-1"].kill()
        await mesh.processes["planner-1"].start()
        await quarantined(mesh, ref)
        await mesh.until(in_state(mesh.bus, "done"), within_s=60)
        assert (await the_letter(mesh)).fault.text.startswith("unknown pack 'missing'")

    packless(tmp_path, body, sweep_s=5)


def test_letter_is_done_while_an_input_waits_for_the_check(tmp_path: Path) -> None:
    """An input of P2 waits for the next check: no turn is due, so the session has recovered."""
    saying: list[asyncio.Task[Receipt]] = []

    async def body(mesh: SimMesh, ref: SessionRef, pack: MissingPack) -> None:
        await mesh.until(in_state(mesh.bus, "failing"), within_s=30)

        def say_later(situation: Situation) -> StepDecision:
            saying.append(asyncio.create_task(mesh.say(ref, f"m{situation.run_id}", priority=2)))
            return StepDecision("done")

        pack.rules = say_later  # type: ignore[method-assign]
        pack.missing = False
        await mesh.until_rest(ref, 1, within_s=30)
        await mesh.until(in_state(mesh.bus, "done"), within_s=60)
        (receipt,) = [await task for task in saying]
        assert [each.sequence for each in (await mesh.sessions.load(ref, 0)).pending] == [receipt.sequence]

    packless(tmp_path, body)
