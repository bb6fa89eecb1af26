"""The server's dedupe window never takes one event for another; in virtual time on the simulated bus."""

from __future__ import annotations

import asyncio
import json

import pytest
from anchorwatch.bus.port import Message
from anchorwatch.core.errors import IdempotencyConflict
from anchorwatch.service.event_publisher import EventPublisher
from anchorwatch.testing.bus import SimServer, run
from anchorwatch.topology.streams import EVENTS, EVENTS_SPEC

SUBJECT = "aw.event.default.fleet.disk"


def event(id_: str = "e1", data: object = 1, time: str = "10:00:00") -> Message:
    content = {"specversion": "1.0", "id": id_, "source": "fleet", "type": "disk", "data": data}
    content["time"] = f"2026-03-17T{time}Z"
    return Message(SUBJECT, json.dumps(content).encode())


def server() -> SimServer:
    made = SimServer()
    made.ensure_stream(EVENTS_SPEC)
    return made


def test_quick_retry_of_an_event_is_stored_once() -> None:
    async def main() -> None:
        publisher = EventPublisher(server().connect())
        first = await publisher.publish(event(time="10:00:00"))
        again = await publisher.publish(event(time="10:00:01"))
        assert (first.duplicate, again.duplicate, again.sequence) == (False, True, first.sequence)

    run(main())


def test_event_with_the_id_of_another_is_a_conflict() -> None:
    async def main() -> None:
        publisher = EventPublisher(server().connect())
        await publisher.publish(event())
        with pytest.raises(IdempotencyConflict, match="'e1' was used before"):
            await publisher.publish(event(data=2))

    run(main())


@pytest.mark.parametrize("forged", [Message("aw.event.x.y", b"{}"), Message("aw.event.UPPER", b"\xff")])
def test_event_whose_message_id_was_sent_first_is_stored(forged: Message) -> None:
    """It needs the key, which no publisher has; then the answer of the server is still not believed."""

    async def main() -> None:
        store = server()
        bus, publisher = store.connect(), EventPublisher(store.connect(), key=b"known")
        first = await publisher.publish(event())
        (stored,) = (await bus.range(EVENTS, SUBJECT, first.sequence)).messages
        await asyncio.sleep(1)
        await bus.publish(Message(forged.subject, forged.payload, message_id=stored.message_id))
        ack = await publisher.publish(event())
        assert (ack.duplicate, ack.sequence) == (False, 3)

    run(main())


def test_two_processes_never_use_one_message_id() -> None:
    async def main() -> None:
        store = server()
        acks = [await EventPublisher(store.connect()).publish(event()) for _ in range(3)]
        assert [ack.duplicate for ack in acks] == [False, False, False]

    run(main())
