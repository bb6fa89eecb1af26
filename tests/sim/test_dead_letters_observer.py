"""An event that cannot be routed is set aside, tried again, and at last shown; those behind it go on at once."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.bus.port import Message
from anchorwatch.core.names import SessionRef
from anchorwatch.edges import Edge
from anchorwatch.journal.inputs import accept, accept_together, input_id
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.testing.process import Life
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import SessionSubjects
from anchorwatch_observer.routing import CONSUMER

from tests.support.letters import in_state, letters, mesh_test, only_letter, order
from tests.support.packs import bench_agent

SUBJECT = "aw.event.default.fleet.instance.dead"


async def publish(mesh: SimMesh, id_: str) -> int:
    return (await mesh.bus.publish(Message(SUBJECT, b"{}", message_id=id_))).sequence


def register_of(ref: SessionRef, id_: str) -> str:
    return SessionSubjects(ref).input(input_id("ev", "message", SUBJECT, id_))


async def bound(mesh: SimMesh, tmp_path: Path) -> SessionRef:
    directory = await AgentDirectory.open(mesh.bus)
    await directory.apply("default", bench_agent(tmp_path, subscriptions=("fleet.>",)))
    ref = SessionRef("default", "fleet")
    await directory.bind(ref, "keeper")
    return ref


async def poison(mesh: SimMesh, ref: SessionRef, id_: str) -> int:
    """An event whose input's register holds what is no record: it can neither be accepted nor found."""
    await mesh.bus.publish(Message(register_of(ref, id_), b"noise"))
    return await publish(mesh, id_)


async def inputs(mesh: SimMesh, ref: SessionRef) -> int:
    return sum(subject.startswith("in.") for _, subject, _ in await mesh.records(ref))


def test_poisonous_event_is_shown_and_a_thousand_later_ones_pass(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("observer")
        ref = await bound(mesh, tmp_path)
        sequence = await poison(mesh, ref, "bad")
        for n in range(1_000):
            await publish(mesh, f"good-{n}")

        async def all_through() -> bool:
            return await inputs(mesh, ref) == 1_001

        await mesh.until(all_through, within_s=20)
        state = await (await mesh.bus.consumer(CONSUMER)).state()
        assert state.ack_pending == 0, "it does not stand in the consumer"
        failing = await only_letter(mesh.bus)
        assert failing is not None
        assert (failing.state, failing.address.sequence) == ("failing", sequence)
        started_ms = mesh.server.now_ms()

        await mesh.until(in_state(mesh.bus, "open"), within_s=300)
        assert mesh.server.now_ms() - started_ms > 60_000, "it had minutes"
        letter = await only_letter(mesh.bus)
        assert letter is not None
        assert (letter.tries, letter.fault.code, letter.address.letter_id) == (
            8, "damaged", f"observer-events-{sequence}"
        )  # fmt: skip

    mesh_test(body)


def test_outage_does_not_count_however_long_it_lasts(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("observer")
        ref = await bound(mesh, tmp_path)
        observer = mesh.processes["observer-1"]
        for n in range(5):
            await publish(mesh, f"e-{n}")
            observer.cut()
            await asyncio.sleep(120)
            observer.reconnect()
            await asyncio.sleep(20)

        async def all_through() -> bool:
            return await inputs(mesh, ref) == 5

        await mesh.until(all_through)
        assert await letters(mesh.bus) == []

    mesh_test(body)


def test_retried_letter_is_done_when_possible_and_else_reopens(
    tmp_path: Path,
) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("observer")
        ref = await bound(mesh, tmp_path)
        await poison(mesh, ref, "bad")

        await mesh.until(in_state(mesh.bus, "open", 1), within_s=300)
        letter = await only_letter(mesh.bus)
        assert letter is not None
        await order(mesh.bus, letter, "retry", mesh.server.now_ms(), "first")
        await mesh.until(in_state(mesh.bus, "open", 2), within_s=300)
        await mesh.bus.purge(journal_stream(), register_of(ref, "bad"))
        letter = await only_letter(mesh.bus)
        assert letter is not None
        assert [action.key for action in letter.actions] == ["first"]
        await order(mesh.bus, letter, "retry", mesh.server.now_ms(), "second")

        await mesh.until(in_state(mesh.bus, "done"), within_s=10)
        assert await inputs(mesh, ref) == 1

    mesh_test(body)


def test_letter_whose_observer_dies_repeatedly_is_not_lost(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("observer")
        ref = await bound(mesh, tmp_path)
        await poison(mesh, ref, "bad")
        observer = mesh.processes["observer-1"]
        for n in range(30):
            await asyncio.sleep(0.37 * (n % 5))
            await observer.kill()
            await observer.start()

        await mesh.until(in_state(mesh.bus, "open"), within_s=600)

    mesh_test(body)


def test_event_whose_letter_fails_at_first_ends_no_observer(tmp_path: Path) -> None:
    def fail(_: Life) -> None:
        raise ZeroDivisionError("a fault of writing letters")

    async def body(mesh: SimMesh) -> None:
        await mesh.open("observer")
        for reach in (1, 2):
            mesh.watch.plan(Edge.OBSERVER_LETTER_BEFORE, reach, fail)
        ref = await bound(mesh, tmp_path)
        await poison(mesh, ref, "bad")
        await mesh.until(in_state(mesh.bus, "open"), within_s=300)
        assert mesh.crashes == []

    mesh_test(body)


class Defective:
    """Accepting inputs as code does that has a defect in how it handles one of them."""

    def __init__(self, id_: str) -> None:
        self._id = id_

    async def accept_together(self, committer: Any, ref: Any, given: Any, **named: Any) -> None:
        self._check(*(id_ for id_, _ in given))
        await accept_together(committer, ref, given, **named)

    async def accept(self, committer: Any, ref: Any, id_: str, *arguments: Any, **named: Any) -> Any:
        self._check(id_)
        return await accept(committer, ref, id_, *arguments, **named)

    def _check(self, *ids: str) -> None:
        if self._id in ids:
            raise RuntimeError("a defect")


def test_defect_in_one_of_several_events_ends_no_observer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("observer")
        ref = await bound(mesh, tmp_path)
        await mesh.processes["observer-1"].kill()
        defective = Defective(input_id("ev", "message", SUBJECT, "bad"))
        monkeypatch.setattr("anchorwatch_observer.routing.accept", defective.accept)
        monkeypatch.setattr("anchorwatch_observer.routing.accept_together", defective.accept_together)
        for id_ in ("a", "bad", "b"):
            await publish(mesh, id_)
        await mesh.processes["observer-1"].start()

        async def others_through() -> bool:
            return await inputs(mesh, ref) == 2

        await mesh.until(others_through, within_s=20)
        await mesh.until(in_state(mesh.bus, "open"), within_s=300)
        assert mesh.crashes == []

    mesh_test(body)


class Deadly:
    """Accepting inputs, where one id ends the process that has it in hand: nothing is written, nothing answered."""

    def __init__(self, mesh: SimMesh, id_: str) -> None:
        self._process = mesh.processes["observer-1"]
        self._id = id_
        self.deaths: list[asyncio.Task[None]] = []

    async def accept_together(self, committer: Any, ref: Any, given: Any, **named: Any) -> None:
        if self._id in dict(given):
            await self.accept(committer, ref, self._id)
        await accept_together(committer, ref, given, **named)

    async def accept(self, committer: Any, ref: Any, id_: str, *arguments: Any, **named: Any) -> Any:
        if id_ == self._id:
            self.deaths.append(asyncio.create_task(self._process.kill()))
            await asyncio.sleep(3600)
        return await accept(committer, ref, id_, *arguments, **named)

    async def revive(self) -> None:
        """Start the process where it does not run; it may die before it is ready."""
        if not self._process.running:
            with contextlib.suppress(asyncio.CancelledError):
                await self._process.start()


@pytest.mark.parametrize("seed", range(3))
def test_event_that_ends_its_observer_is_the_only_one_blamed(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("observer")
        ref = await bound(mesh, tmp_path)
        await mesh.processes["observer-1"].kill()
        deadly = Deadly(mesh, input_id("ev", "message", SUBJECT, "killer"))
        monkeypatch.setattr("anchorwatch_observer.routing.accept", deadly.accept)
        monkeypatch.setattr("anchorwatch_observer.routing.accept_together", deadly.accept_together)
        for id_ in (*(f"a-{n}" for n in range(20)), "killer", *(f"b-{n}" for n in range(20))):
            await publish(mesh, id_)

        async def all_through() -> bool:
            await deadly.revive()
            return await inputs(mesh, ref) == 40 and any(
                each.state == "open" for each in await letters(mesh.bus)
            )

        await mesh.until(all_through, within_s=600)
        (letter,) = [each for each in await letters(mesh.bus) if each.state != "suspected"]
        assert (letter.state, letter.fault.code) == ("open", "crashed")
        assert len(deadly.deaths) >= 8

    mesh_test(body, seed)
