"""An event that was accepted is seen: no publisher can take the place of another's event, or of a probe's."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.bus.port import Message, StreamFull
from anchorwatch.codec import decode
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Record
from anchorwatch.journal.inputs import input_id
from anchorwatch.journal.letters import find_message
from anchorwatch.packs.port import Probed
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.event_counts import read_counts
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.streams import EVENTS, journal_stream
from anchorwatch.topology.subjects import SessionSubjects
from anchorwatch_observer import routing
from anchorwatch_observer.probing import ProbeIds, as_event
from anchorwatch_observer.routing import BATCH, CONSUMER
from anchorwatch_observer.space import free_space

from tests.support.letters import in_state, letters, mesh_test, only_letter, order
from tests.support.packs import Sink, bench_agent


async def bound(mesh: SimMesh, tmp_path: Path, *workspaces: str) -> list[SessionRef]:
    """A session in each workspace, which receives every event of `fleet` and `bench`."""
    directory = await AgentDirectory.open(mesh.bus)
    refs = [SessionRef(workspace, "keeper-1") for workspace in workspaces]
    for ref in refs:
        agent = bench_agent(tmp_path / "world", subscriptions=("fleet.>", "bench.>"))
        await directory.apply(ref.workspace, agent)
        await directory.bind(ref, "keeper")
    return refs


def cloudevent(source: str, id_: str, data: object) -> bytes:
    return json.dumps({"specversion": "1.0", "id": id_, "source": source, "type": "t", "data": data}).encode()


async def inputs(mesh: SimMesh, ref: SessionRef) -> list[Record]:
    page = await mesh.bus.range(journal_stream(), SessionSubjects(ref).inputs, 1, limit=1_000)
    return [decode(stored.payload) for stored in page.messages]


async def data_of(mesh: SimMesh, ref: SessionRef) -> list[Any]:
    """The data of the inputs that a turn consumes."""
    return [record.body.get("data") for record in await inputs(mesh, ref) if "settled" not in record.body]


def test_two_publishers_may_use_one_message_id(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("observer")
        a, b = await bound(mesh, tmp_path, "a", "b")
        for workspace in "ab":
            subject = f"aw.event.{workspace}.fleet.disk"
            await mesh.bus.publish(Message(subject, f'"{workspace}"'.encode(), message_id="1"))
            await asyncio.sleep(0.2)
        await asyncio.sleep(5)
        assert (await data_of(mesh, a), await data_of(mesh, b)) == (["a"], ["b"])

    mesh_test(body)


def test_publisher_cannot_take_the_id_of_a_probes_event(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("observer")
        sink = Sink(tmp_path / "world")
        (ref,) = await bound(mesh, tmp_path, "default")
        subject = "aw.event.default.bench.thing.dead"
        guesses = (
            b"{}",
            cloudevent("/default/bench", "dead-w-1", None),
            cloudevent("/default/bench", "dead-w-1~0", None),
        )
        for guess in guesses:
            await mesh.bus.publish(Message(subject, guess, message_id=f"{subject}/dead-w-1"))
            await asyncio.sleep(0.2)
        sink.set_world(dead="w-1")
        await asyncio.sleep(10)
        assert {"name": "w-1"} in await data_of(mesh, ref)

    mesh_test(body)


def test_change_published_by_two_observers_is_one_input(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("observer", "observer")
        sink = Sink(tmp_path / "world")
        (ref,) = await bound(mesh, tmp_path, "default")
        sink.set_world(dead="w-1")
        for name in ("observer-1", "observer-2", "observer-1"):
            await asyncio.sleep(20)
            await mesh.processes[name].kill()
            await mesh.processes[name].start()
        await asyncio.sleep(20)
        stored = (await mesh.bus.range("EVENTS", "aw.event.default.bench.>", 1)).messages
        assert len(stored) >= 2, "each new leader publishes the changes that hold"
        assert len({json.loads(each.payload)["id"] for each in stored}) == 1
        assert await data_of(mesh, ref) == [{"name": "w-1"}]

    mesh_test(body)


def test_another_event_with_a_used_id_is_listed_as_refused(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("observer")
        (ref,) = await bound(mesh, tmp_path, "default")
        same = {"specversion": "1.0", "id": "e1", "source": "/disk", "type": "disk", "data": {"n": 1}}
        await mesh.bus.publish(Message("aw.event.default.fleet.disk", json.dumps(same).encode()))
        await asyncio.sleep(130)
        for type_, changed in (
            ("disk", {"time": "2026-03-17T10:00:00Z"}),
            ("disk", {"data": {"n": 2}}),
            ("fire", {}),
            ("fire", {"time": "2026-03-17T11:00:00Z"}),
        ):
            payload = json.dumps({**same, "type": type_, **changed}).encode()
            await mesh.bus.publish(Message(f"aw.event.default.fleet.{type_}", payload))
        await asyncio.sleep(5)
        found = [
            (record.body["type"], record.body["data"]["n"], record.body.get("settled"))
            for record in await inputs(mesh, ref)
        ]
        assert found == [("disk", 1, None), ("disk", 2, "refused"), ("fire", 1, "refused")]
        assert "another event used its id before" in (await inputs(mesh, ref))[1].body["why"]

    mesh_test(body)


def test_newer_data_of_a_probes_change_is_not_a_refused_event(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("observer")
        (ref,) = await bound(mesh, tmp_path, "default")
        ids = ProbeIds(mesh.bus)
        for n in (1, 2):
            change = Probed("backlog-7", "fleet", "queue.backlog", "P1", {"backlog_s": n})
            event_id = await ids.of("default", change)
            await mesh.bus.publish(as_event("default", change, event_id, n))
            await asyncio.sleep(1)
        assert await data_of(mesh, ref) == [{"backlog_s": 1}]

    mesh_test(body)


STORM = 2_000


def test_events_of_unknown_workspaces_cost_no_own_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refreshes = [0]
    refresh = AgentDirectory.refresh

    async def counted(self: AgentDirectory) -> None:
        refreshes[0] += 1
        await refresh(self)

    async def body(mesh: SimMesh) -> None:
        await mesh.open("observer")
        (ref,) = await bound(mesh, tmp_path, "default")
        await mesh.processes["observer-1"].kill()
        for n in range(STORM):
            # Half of them are malformed, too, and become no dead letters.
            await mesh.bus.publish(
                Message(f"aw.event.unknown-{n}.fleet.{'x' if n % 2 else chr(0xA0)}", b"{}")
            )
        await mesh.bus.publish(Message("aw.event.default.fleet.disk", b'"real"'))
        monkeypatch.setattr(AgentDirectory, "refresh", counted)
        await mesh.processes["observer-1"].start()

        async def through() -> bool:
            return await data_of(mesh, ref) == ["real"]

        await mesh.until(through)
        assert refreshes[0] <= STORM / BATCH + 10
        assert len(mesh.journal()) == 1
        assert await letters(mesh.bus) == []
        await asyncio.sleep(1)
        state = await (await mesh.bus.consumer(CONSUMER)).state()
        assert (state.ack_pending, state.pending) == (0, 0)

    mesh_test(body, probe_interval_s=600)


LIMIT = 2 * 1024 * 1024
LARGE = b"x" * 100_000


async def sent(mesh: SimMesh, subject: str, payload: bytes) -> bool:
    """Whether the event was stored; a full stream refuses it."""
    try:
        await mesh.bus.publish(Message(subject, payload))
    except StreamFull:
        return False
    return True


def test_flood_of_events_fills_no_disk_and_silences_no_other(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("observer")
        (ref,) = await bound(mesh, tmp_path, "default")
        await asyncio.sleep(1)
        real: list[object] = []
        for n in range(200):
            await sent(mesh, "aw.event.nowhere.fleet.disk", LARGE)
            assert (await mesh.bus.stream_state(EVENTS)).bytes <= LIMIT
            if n % 20 == 0:
                real.append(n)
                event = partial(sent, mesh, "aw.event.default.fleet.disk", json.dumps(n).encode())
                await mesh.until(event)
        await asyncio.sleep(10)
        assert await data_of(mesh, ref) == real
        counts = await read_counts(mesh.bus)
        assert counts["observer-1", "routed"] == len(real)
        assert counts["observer-1", "unknown_workspace"] > 0

    mesh_test(body, events_bytes_max=LIMIT)


def test_full_stream_keeps_every_event_that_was_not_routed(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("observer")
        (ref,) = await bound(mesh, tmp_path, "default")
        await asyncio.sleep(1)
        # Its input's register holds no record: it becomes a dead letter, and can be retried.
        bad = input_id("ev", "message", "aw.event.default.fleet.disk", "bad")
        await mesh.bus.publish(Message(SessionSubjects(ref).input(bad), b"noise"))
        await mesh.bus.publish(Message("aw.event.default.fleet.disk", b"0", message_id="bad"))
        await mesh.until(in_state(mesh.bus, "open"), within_s=300)
        await mesh.processes["observer-1"].kill()
        stored = 0
        while await sent(
            mesh, "aw.event.default.fleet.disk", json.dumps(f"{stored}{LARGE.decode()}").encode()
        ):
            stored += 1
        assert stored > LIMIT / len(LARGE) - 2
        await mesh.processes["observer-1"].start()

        async def through() -> bool:
            return sum(subject.startswith("in.") for _, subject, _ in await mesh.records(ref)) == stored + 1

        await mesh.until(through)
        await asyncio.sleep(10)
        letter = await only_letter(mesh.bus)
        assert letter is not None
        assert (await find_message(mesh.bus, letter.address)).payload == b"0"
        # The stream stays full for as long as a letter needs its oldest event.
        assert not await sent(mesh, "aw.event.default.fleet.disk", LARGE)
        await order(mesh.bus, letter, "drop", mesh.server.now_ms())
        await asyncio.sleep(10)
        assert await sent(mesh, "aw.event.default.fleet.disk", LARGE)

    mesh_test(body, events_bytes_max=LIMIT)


def test_full_stream_is_routed_before_it_is_emptied(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("observer")
        (ref,) = await bound(mesh, tmp_path, "default")
        await asyncio.sleep(1)
        await mesh.processes["observer-1"].kill()
        stored = 0
        while await sent(
            mesh, "aw.event.default.fleet.disk", json.dumps(f"{stored}{LARGE.decode()}").encode()
        ):
            stored += 1
        assert await free_space(mesh.bus, mesh.log) == 0, "none of them was routed"
        await mesh.processes["observer-1"].start()

        async def through() -> bool:
            return sum(subject.startswith("in.") for _, subject, _ in await mesh.records(ref)) == stored

        await mesh.until(through)
        await asyncio.sleep(10)
        assert await sent(mesh, "aw.event.default.fleet.disk", LARGE)

    mesh_test(body, events_bytes_max=LIMIT)


def test_malformed_events_become_a_limited_number_of_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(mesh: SimMesh) -> None:
        monkeypatch.setattr(routing, "MALFORMED_LETTERS_MAX", 5)
        await mesh.open("observer")
        await bound(mesh, tmp_path, "default")
        for _ in range(20):
            await mesh.bus.publish(Message("aw.event.default.a\u00a0b", b"{}"))
        await asyncio.sleep(10)
        assert len(await letters(mesh.bus)) == 5
        assert (await read_counts(mesh.bus))["observer-1", "malformed_unlisted"] == 15

    mesh_test(body)
