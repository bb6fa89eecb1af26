"""Streams and consumers that two clients make at once, against a simulated JetStream API on a real connection.

A cluster refuses a name that another client has just used, although it does not list the new stream yet.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import nats
import pytest
from anchorwatch.bus import jetstream
from anchorwatch.bus.jetstream import JetStreamBus
from anchorwatch.bus.port import ConsumerSpec
from anchorwatch.core.errors import BadInput, Unavailable
from anchorwatch.topology.streams import StreamSpec
from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.support.nats_server import NatsServer, running_server

SPEC = StreamSpec("J", ("j.>",))
CONSUMER = ConsumerSpec("J", ("j.>",), "d")
NO_STREAM = {"code": 404, "err_code": 10059, "description": "stream not found"}
NO_CONSUMER = {"code": 404, "err_code": 10014, "description": "consumer not found"}
STREAM_TAKEN = {
    "code": 400, "err_code": 10058, "description": "stream name already in use with a different configuration"
}  # fmt: skip
CONSUMER_TAKEN = {"code": 400, "err_code": 10148, "description": "consumer already exists"}
WRONG = {"code": 400, "err_code": 10052, "description": "that will not do"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server without JetStream: a test can answer its API subjects."""
    with running_server(tmp_path_factory.mktemp("plain"), more="jetstream: false") as running:
        yield running


@pytest.fixture
async def stand_in(server: NatsServer) -> AsyncIterator[Client]:
    client = await nats.connect(server.url)
    yield client
    await client.close()


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[JetStreamBus]:
    bus = await jetstream.connect(server.url, user=None, password=None, name="maker")
    yield bus
    await bus.close()


async def answers(client: Client, by: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse each API request with the error in ``by`` for the prefix of its subject."""

    async def answer(question: Msg) -> None:
        verb = question.subject.removeprefix("$JS.API.")
        [error] = [each for beginning, each in by.items() if verb.startswith(beginning)]
        await question.respond(json.dumps({"error": error}).encode())

    await client.subscribe("$JS.API.>", cb=answer)
    # The ping of the first flush may overtake unwritten bytes; the second cannot.
    await client.flush()
    await client.flush()


async def test_stream_made_by_another_client_is_awaited(bus: JetStreamBus, stand_in: Client) -> None:
    await answers(stand_in, {"STREAM.INFO": NO_STREAM, "STREAM.CREATE": STREAM_TAKEN})
    with pytest.raises(Unavailable, match="stream J is being made"):
        await bus.ensure_stream(SPEC)


async def test_stream_that_cannot_be_made_is_an_error_at_once(bus: JetStreamBus, stand_in: Client) -> None:
    await answers(stand_in, {"STREAM.INFO": NO_STREAM, "STREAM.CREATE": WRONG})
    with pytest.raises(BadInput, match="that will not do"):
        await bus.ensure_stream(SPEC)


async def test_consumer_made_by_another_client_is_awaited(bus: JetStreamBus, stand_in: Client) -> None:
    await answers(stand_in, {"CONSUMER.INFO": NO_CONSUMER, "CONSUMER.CREATE": CONSUMER_TAKEN})
    with pytest.raises(Unavailable, match="consumer d of J is being made"):
        await bus.consumer(CONSUMER)


async def test_consumer_that_cannot_be_made_is_an_error_at_once(bus: JetStreamBus, stand_in: Client) -> None:
    await answers(stand_in, {"CONSUMER.INFO": NO_CONSUMER, "CONSUMER.CREATE": WRONG})
    with pytest.raises(BadInput, match="that will not do"):
        await bus.consumer(CONSUMER)
