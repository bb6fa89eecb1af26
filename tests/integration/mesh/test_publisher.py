"""The publisher's credentials allow it to publish events, and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error

from tests.integration.mesh.meshes import SmallMesh

HEARD_S_MAX = 30.0


@asynccontextmanager
async def client(
    mesh: SmallMesh, user: str, problems: asyncio.Queue[str] | None = None, inbox_prefix: bytes = b"_INBOX"
) -> AsyncIterator[Client]:
    async def note(error: Exception) -> None:
        if problems is not None:
            problems.put_nowait(str(error))

    connection = await nats.connect(
        mesh.mesh.nats_url, user=user, password=mesh.secret(user), error_cb=note, inbox_prefix=inbox_prefix
    )
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def streams(mesh: SmallMesh) -> SmallMesh:
    done = await asyncio.to_thread(mesh.run, "--detach")
    assert done.returncode == 0, done.stderr
    async with client(mesh, "gateway", inbox_prefix=b"_INBOX_gateway") as gateway:
        js = gateway.jetstream()
        await js.add_stream(name="EVENTS", subjects=["aw.event.>"])
        await js.add_stream(name="JOURNAL_0", subjects=["aw.journal.0.>"])
    return mesh


async def messages(mesh: SmallMesh, stream: str) -> int:
    async with client(mesh, "gateway", inbox_prefix=b"_INBOX_gateway") as gateway:
        return (await gateway.jetstream().stream_info(stream)).state.messages


async def test_publisher_publishes_events_with_and_without_reply(streams: SmallMesh) -> None:
    problems: asyncio.Queue[str] = asyncio.Queue()
    async with client(streams, "publisher", problems) as publisher:
        ack = await publisher.jetstream().publish("aw.event.default.fleet.instance.dead", b"{}")
        assert (ack.stream, ack.seq) == ("EVENTS", 1)
        await publisher.publish("aw.event.default.fleet.instance.dead", b"{}")
        await publisher.flush()
    assert await messages(streams, "EVENTS") == 2
    assert problems.empty()


@pytest.mark.parametrize("subject", ["aw.journal.0.default.fleet.in.x", "aw.tick.fired.0.default.fleet", "aw.rpc.fleet", "x",
                                     "$JS.API.STREAM.PURGE.EVENTS", "$KV.leases.x"])  # fmt: skip
async def test_publisher_publishes_no_other_subject(streams: SmallMesh, subject: str) -> None:
    problems: asyncio.Queue[str] = asyncio.Queue()
    async with client(streams, "publisher", problems) as publisher:
        with pytest.raises(Error):
            await publisher.request(subject, b"{}", timeout=0.3)
        async with asyncio.timeout(HEARD_S_MAX):
            assert "permissions violation for publish" in await problems.get()
    assert await messages(streams, "JOURNAL_0") == 0


async def test_reply_subject_of_an_event_forges_no_journal_record(streams: SmallMesh) -> None:
    async with client(streams, "publisher") as publisher:
        await publisher.publish(
            "aw.event.default.x.y", b"{}", reply="aw.journal.0.default.fleet.p.anchor.change"
        )
        await publisher.flush()
        # Once the next event is acknowledged, the effect of this one would be stored.
        await publisher.jetstream().publish("aw.event.default.x.y", b"{}")
    assert await messages(streams, "EVENTS") == 2
    assert await messages(streams, "JOURNAL_0") == 0


@pytest.mark.parametrize("subject", [">", "aw.>", "_INBOX_gateway.>", "$JS.>"])
async def test_publisher_subscribes_to_no_other_subject(streams: SmallMesh, subject: str) -> None:
    problems: asyncio.Queue[str] = asyncio.Queue()
    async with client(streams, "publisher", problems) as publisher:
        await publisher.subscribe(subject)
        async with asyncio.timeout(HEARD_S_MAX):
            assert "permissions violation for subscription" in await problems.get()


async def test_publisher_inbox_receives_no_answer_to_a_service(streams: SmallMesh) -> None:
    async with client(streams, "publisher") as publisher, client(streams, "gateway") as careless:
        heard = await publisher.subscribe("_INBOX.>")
        await publisher.flush()
        # Even a service that uses the common prefix is not overheard: it is in another account.
        await careless.jetstream().stream_info("EVENTS")
        await publisher.flush()
        assert heard.pending_msgs == 0
