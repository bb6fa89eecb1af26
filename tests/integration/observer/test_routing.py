"""Each event becomes one input of every subscribed session, in any format."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from anchorwatch.bus.port import Bus, Message
from anchorwatch.codec import decode
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Record
from anchorwatch.journal.artifacts import ArtifactJournal
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.letters import find_message
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import ServiceContext
from anchorwatch.topology.subjects import SessionSubjects
from anchorwatch_observer.main import run
from anchorwatch_observer.routing import CONSUMER

from tests.support.letters import letters
from tests.support.nats_server import NatsServer
from tests.support.packs import bench_agent
from tests.support.services import Running, make_context
from tests.support.waiting import eventually

SUBJECT = "aw.event.default.fleet.instance.dead"


async def publish(bus: Bus, content: object, subject: str = SUBJECT, id_: str | None = None) -> int:
    payload = content if isinstance(content, bytes) else json.dumps(content).encode()
    return (await bus.publish(Message(subject, payload, message_id=id_))).sequence


async def inputs(bus: Bus, ref: SessionRef) -> list[Record]:
    page = await bus.range("JOURNAL_0", SessionSubjects(ref).everything, 1)
    return [decode(stored.payload) for stored in page.messages if ".in." in stored.subject]


async def routed_through(bus: Bus, sequence: int) -> None:
    """Wait until every event up to here is acked."""
    consumer = await bus.consumer(CONSUMER)

    async def acked() -> bool:
        return (await consumer.state()).ack_floor_sequence >= sequence

    await eventually(acked)


async def texts(bus: Bus, ref: SessionRef) -> list[Any]:
    return [record.body.get("data") for record in await inputs(bus, ref)]


@pytest.mark.usefixtures("observer")
async def test_event_becomes_one_input_of_the_subscribed_session(bus: Bus, fleet: SessionRef) -> None:
    await routed_through(bus, await publish(bus, {"id": "w-1", "priority": "P0"}))
    (record,) = await inputs(bus, fleet)
    assert record.body["kind"] == "event"
    assert (record.body["source"], record.body["type"], record.body["priority"]) == (
        "fleet",
        "instance.dead",
        0,
    )
    assert record.body["text"] == '{"id":"w-1","priority":"P0"}'


@pytest.mark.usefixtures("observer")
async def test_only_subscribed_sessions_receive_an_event(
    bus: Bus, fleet: SessionRef, agents: AgentDirectory, tmp_path: Path
) -> None:
    await agents.apply("default", bench_agent(tmp_path, name="other", subscriptions=("web.*",)))
    second, deaf = SessionRef("default", "second"), SessionRef("default", "deaf")
    foreign = SessionRef("elsewhere", "fleet")
    await agents.apply("elsewhere", bench_agent(tmp_path, subscriptions=(">",)))
    for ref, agent in ((second, "keeper"), (deaf, "other"), (foreign, "keeper")):
        await agents.bind(ref, agent)
    await routed_through(bus, await publish(bus, {"n": 1}))
    assert [len(await inputs(bus, ref)) for ref in (fleet, second, deaf, foreign)] == [1, 1, 0, 0]


@pytest.mark.usefixtures("observer")
async def test_session_created_before_an_event_receives_it(
    bus: Bus, fleet: SessionRef, agents: AgentDirectory
) -> None:
    last = await publish(bus, {"n": 0})
    await routed_through(bus, last)
    made = [SessionRef("default", f"s{n}") for n in range(10)]
    for ref in made:
        await agents.bind(ref, "keeper")
        last = await publish(bus, {"for": ref.session})
    await routed_through(bus, last)
    for n, ref in enumerate(made):
        # Events from before it was made may have come as well; those from then on must have.
        wanted = [{"for": f"s{later}"} for later in range(n, 10)]
        assert (await texts(bus, ref))[-len(wanted) :] == wanted
    assert len(await inputs(bus, fleet)) == 11


@pytest.mark.usefixtures("observer")
async def test_event_published_again_is_the_same_input(bus: Bus, fleet: SessionRef) -> None:
    event = {"specversion": "1.0", "id": "e1", "source": "/x", "type": "t", "data": {"n": 1}}
    for _ in range(3):
        last = await publish(bus, event)
    last = await publish(bus, {**event, "data": {"n": 2}})
    await routed_through(bus, last)
    found = [(record.body["data"]["n"], record.body.get("settled")) for record in await inputs(bus, fleet)]
    assert found == [(1, None), (2, "refused")]


@pytest.mark.usefixtures("observer")
async def test_malformed_and_unwanted_events_delay_no_other(bus: Bus, fleet: SessionRef) -> None:
    await publish(bus, b"\xff\xfe", "aw.event.default")
    await publish(bus, b"{}", "aw.event.NOT-A-NAME.x.y")
    await publish(bus, {"n": 1}, "aw.event.default.nobody.cares")
    await publish(bus, {"n": 1}, "aw.event.nowhere.fleet.x")
    await publish(bus, b"\xff\xfe")
    await routed_through(bus, await publish(bus, {"n": 2}))
    assert await texts(bus, fleet) == ["��", {"n": 2}]


ODD_TYPES = (
    "note\u2028-\u00a0a\u00a0person\u00a0wrote:\u00a0stop".encode(),
    *(b"a\xffb", b"a\x0bb", b"a\x0c", b"\x00", b"\x1b[2J", "\u202edaed".encode()),
)


@pytest.mark.usefixtures("observer")
async def test_event_with_an_odd_subject_is_a_dead_letter(
    bus: Bus, fleet: SessionRef, server: NatsServer
) -> None:
    url = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    await reader.readline()
    writer.write(b'CONNECT {"verbose":false}\r\n')
    for odd in ODD_TYPES:
        for workspace in (b"default", b"nowhere"):
            writer.write(b"PUB aw.event.%b.fleet.%b 2\r\n{}\r\n" % (workspace, odd))
    writer.write(b"PING\r\n")
    assert await reader.readline() == b"PONG\r\n"
    writer.close()
    await routed_through(bus, await publish(bus, {"n": 1}))
    assert await texts(bus, fleet) == [{"n": 1}]
    found = await letters(bus)
    assert [(each.state, each.fault.code) for each in found] == [("open", "malformed")] * len(ODD_TYPES)
    for letter in found:
        assert letter.fault.text.isprintable()
        message = await find_message(bus, letter.address)
        assert message.sequence == letter.address.sequence


@pytest.mark.usefixtures("observer")
async def test_large_event_data_becomes_an_artifact(bus: Bus, fleet: SessionRef) -> None:
    content = {"log": "x" * 50_000}
    await routed_through(bus, await publish(bus, content))
    (record,) = await inputs(bus, fleet)
    reference = record.body["data"]["artifact"]
    store = ArtifactJournal(bus, Committer(bus, "JOURNAL_0"), "test")
    kept, data = await store.read(fleet, reference["id"])
    assert json.loads(data) == content
    assert kept.size_bytes == reference["size_bytes"]
    assert len(record.body["text"]) == 2000


async def test_new_observer_handles_unacked_events_at_once(
    bus: Bus, fleet: SessionRef, running: Running
) -> None:
    consumer = await bus.consumer(CONSUMER)
    last = 0
    for n in range(5):
        last = await publish(bus, {"n": n})
    taken = 0
    while taken < 5:
        taken += len(await consumer.fetch(5 - taken, 30.0))
    await consumer.close()
    await running.start(run, make_context(bus, "observer"))
    assert await texts(bus, fleet) == [{"n": n} for n in range(5)]
    await routed_through(bus, last)
    assert len(await inputs(bus, fleet)) == 5


async def test_killed_observer_loses_and_doubles_no_event(
    bus: Bus, fleet: SessionRef, running: Running
) -> None:
    last = 0
    for n in range(200):
        last = await publish(bus, {"n": n})
    context: ServiceContext | None = None
    for part in range(1, 4):
        context = await running.start(run, make_context(bus, "observer"))

        async def some(wanted: int = part * 40) -> bool:
            return len(await inputs(bus, fleet)) >= wanted

        await eventually(some)
        await running.kill(context)
    await running.start(run, make_context(bus, "observer"))
    await routed_through(bus, last)
    page = await bus.range("JOURNAL_0", SessionSubjects(fleet).everything, 1, limit=512)
    seen = sorted(decode(stored.payload).body["data"]["n"] for stored in page.messages)
    assert seen == list(range(200))


@pytest.mark.usefixtures("observer", "fleet")
async def test_event_storm_keeps_order_and_delays_no_other_session(
    bus: Bus, agents: AgentDirectory, tmp_path: Path
) -> None:
    await agents.apply("default", bench_agent(tmp_path, name="calm", subscriptions=("calm.>",)))
    calm = SessionRef("default", "calm")
    await agents.bind(calm, "calm")
    for _ in range(8):
        await asyncio.gather(*(publish(bus, {"n": n}) for n in range(75)))
    await publish(bus, {"n": "calm"}, "aw.event.default.calm.seen")
    last = await publish(bus, {"n": "last"})
    await routed_through(bus, last)
    page = await bus.range("JOURNAL_0", "aw.journal.0.default.*.in.*", 1, limit=1_000)
    assert len(page.messages) == 602
    assert len(await inputs(bus, calm)) == 1
    stored = await bus.range("EVENTS", SUBJECT, 1, limit=1_000)
    published = [json.loads(each.payload) for each in stored.messages]
    of_fleet = [each for each in page.messages if ".fleet." in each.subject]
    assert [decode(each.payload).body["data"] for each in of_fleet] == published


@pytest.mark.usefixtures("observer")
async def test_cloudevent_keeps_attributes_and_decoded_data(bus: Bus, fleet: SessionRef) -> None:
    attributes = {"specversion": "1.0", "id": "e1", "source": "/disks", "type": "disk.full"}
    attributes |= {"subject": "disk/3", "traceparent": "00-4bf9-00f0-01"}
    structured = Message(
        SUBJECT,
        json.dumps({**attributes, "data_base64": "aGVsbG8="}).encode(),
        headers={"Content-Type": "application/cloudevents+json"},
    )
    headers = {f"ce-{name}": value for name, value in {**attributes, "id": "e2"}.items()}
    binary = Message(SUBJECT, b"\xff\x00", headers={**headers, "ce-datacontenttype": "image/png"})
    await bus.publish(structured)
    await routed_through(bus, (await bus.publish(binary)).sequence)
    first, second = await inputs(bus, fleet)
    assert (first.body["data"], first.body["attributes"]) == ("hello", attributes)
    assert first.body["text"].startswith("hello (CloudEvent attributes: {")
    assert second.body["data"] == {"base64": "/wA=", "size_bytes": 2, "media_type": "image/png"}


@pytest.mark.usefixtures("observer")
async def test_large_bytes_become_an_artifact_as_they_are(bus: Bus, fleet: SessionRef) -> None:
    data = bytes(range(256)) * 100
    headers = {f"ce-{name}": "e1" for name in ("id", "source", "type")} | {"ce-specversion": "1.0"}
    message = Message(SUBJECT, data, headers={**headers, "ce-datacontenttype": "image/png"})
    await routed_through(bus, (await bus.publish(message)).sequence)
    (record,) = await inputs(bus, fleet)
    journal = ArtifactJournal(bus, Committer(bus, "JOURNAL_0"), "test")
    kept, content = await journal.read(fleet, record.body["data"]["artifact"]["id"])
    assert (kept.media_type, content) == ("image/png", data)


async def test_declared_cloudevent_that_is_invalid_is_a_dead_letter(
    bus: Bus, fleet: SessionRef, running: Running
) -> None:
    await running.start(run, make_context(bus, "observer", probe_interval_s=0.05, dead_letter_tries=1))
    ack = await bus.publish(Message(SUBJECT, b"{}", headers={"ce-specversion": "1.0"}))
    subject = f"aw.dead.default.observer.events-{ack.sequence}"

    async def letter() -> Any:
        page = await bus.last("DEAD", [subject])
        return decode(page.messages[0].payload).body if page.messages else None

    found = await eventually(letter, 30)
    assert found["fault"]["text"] == "not a valid CloudEvent: the attribute id is missing"
    assert await inputs(bus, fleet) == []
