"""The JetStream bus with a server that is killed, stalls, denies, or closes the connection."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from anchorwatch.bus import jetstream
from anchorwatch.bus.jetstream import JetStreamBus
from anchorwatch.bus.port import ConsumerSpec, Disconnected, Message, StreamMissing
from anchorwatch.core.errors import Denied, TooLarge, Unavailable
from anchorwatch.topology.streams import BucketSpec, StreamSpec

from tests.support.eventually import eventually, persist
from tests.support.nats_server import NatsServer, User, running_server

ADMIN = User("admin", "admin-password")
WRITER = User("writer", "writer-password", publish=("s.writer.>",), subscribe=("_INBOX.writer.>",))
DEAF = User("deaf", "deaf-password", subscribe=("nothing",))
STREAM = StreamSpec("S", ("s.>",), atomic_batches=True)
# "At once" on a busy machine: well below the timeout of the call.
AT_ONCE_S = 30.0


class Mesh:
    """A server and its clients."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self.errors: list[str] = []
        self._buses: list[JetStreamBus] = []

    async def connect(self, user: User = ADMIN, **options: float) -> JetStreamBus:
        bus = await jetstream.connect(
            self.server.url,
            user=user.name,
            password=user.password,
            name=user.name,
            inbox=f"_INBOX.{user.name}",
            on_error=self.errors.append,
            **options,  # type: ignore[arg-type]  # connect_timeout_s
        )
        self._buses.append(bus)
        return bus

    async def close(self) -> None:
        for bus in self._buses:
            await bus.close()


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Mesh]:
    with running_server(tmp_path, (ADMIN, WRITER, DEAF)) as server:
        mesh = Mesh(server)
        yield mesh
        await mesh.close()
    # A closed bus leaves no task.
    assert [task for task in asyncio.all_tasks() if "nats" in repr(task.get_coro())] == []


@contextlib.asynccontextmanager
async def knocks(port: int) -> AsyncIterator[list[int]]:
    """Listen on a server's port in its place and close each connection; yields one number for each."""
    came: list[int] = []

    async def turn_away(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(len(came))
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async with await asyncio.start_server(turn_away, "127.0.0.1", port):
        yield came


async def count_fetches(witness: JetStreamBus) -> list[bytes]:
    """The requests for the consumer `d` of the stream, as they arrive."""
    asked: list[bytes] = []

    async def count(_subject: str, payload: bytes) -> None:
        asked.append(payload)

    await witness.subscribe("$JS.API.CONSUMER.MSG.NEXT.S.d", count)
    return asked


# Killed, and started again.


async def test_work_continues_across_kills(mesh: Mesh) -> None:
    """A publisher and a consumer receive every message although the server is killed three times."""
    publisher, reader = await mesh.connect(), await mesh.connect()
    await publisher.ensure_stream(STREAM)
    consumer = await reader.consumer(ConsumerSpec("S", ("s.>",), "d", ack_wait_s=2.0))
    wanted = 400
    seen: dict[bytes, int] = {}

    async def publish_all() -> None:
        for n in range(wanted):
            message = Message("s.a", str(n).encode(), message_id=str(n))
            await persist(lambda message=message: publisher.publish(message, timeout_s=1.0))  # type: ignore[misc]

    async def consume_all() -> None:
        while len(seen) < wanted:
            for delivery in await consumer.fetch(20, 1.0):
                seen.setdefault(delivery.stored.payload, delivery.stored.sequence)
                await delivery.ack()

    work = asyncio.gather(publish_all(), consume_all())
    for reached in (50, 150, 300):
        await eventually(lambda reached=reached: len(seen) >= reached)  # type: ignore[misc]
        await asyncio.to_thread(mesh.server.restart)
    await asyncio.wait_for(work, 60)
    assert set(seen) == {str(n).encode() for n in range(wanted)}
    # One id for all retries: no message is stored twice.
    assert (await publisher.stream_state("S")).messages == wanted
    assert any("lost" in text for text in mesh.errors)
    assert any("reconnected" in text for text in mesh.errors)


async def test_call_in_flight_fails_with_the_connection(mesh: Mesh) -> None:
    bus = await mesh.connect()

    heard: list[bytes] = []

    async def silent(_subject: str, payload: bytes) -> None:
        heard.append(payload)

    await bus.subscribe("rpc", silent)
    asking = asyncio.create_task(bus.request("rpc", b"", 60.0))
    await eventually(lambda: heard)
    mesh.server.kill9()
    with pytest.raises(Disconnected):
        await asyncio.wait_for(asking, AT_ONCE_S)
    assert not bus.connected


async def test_call_without_a_server_waits_for_it(mesh: Mesh) -> None:
    bus = await mesh.connect()
    await bus.ensure_stream(STREAM)
    mesh.server.kill9()
    await eventually(lambda: not bus.connected)
    publishing = asyncio.create_task(bus.publish(Message("s.a", b"x"), timeout_s=30.0))
    # A call that did not wait would fail before the process starts.
    await asyncio.to_thread(mesh.server.start)
    assert (await asyncio.wait_for(publishing, AT_ONCE_S)).sequence == 1


async def test_call_without_a_server_ends_at_its_timeout(mesh: Mesh) -> None:
    bus = await mesh.connect()
    await bus.ensure_stream(STREAM)
    mesh.server.kill9()
    await eventually(lambda: not bus.connected)
    with pytest.raises(Disconnected):
        await bus.publish(Message("s.a", b"x"), timeout_s=0.2)
    await bus.announce("live", b"x")
    await asyncio.to_thread(mesh.server.start)
    await eventually(lambda: bus.connected)
    # A failed message was not kept to be sent later.
    assert (await bus.stream_state("S")).messages == 0


async def test_waiting_fetch_survives_a_restart(mesh: Mesh) -> None:
    bus, witness = await mesh.connect(), await mesh.connect()
    await bus.ensure_stream(STREAM)
    consumer = await bus.consumer(ConsumerSpec("S", ("s.>",), "d"))
    asked = await count_fetches(witness)

    async def fetch_one() -> bytes:
        while True:
            for delivery in await consumer.fetch(1, 30.0):
                return delivery.stored.payload

    fetching = asyncio.create_task(fetch_one())
    await eventually(lambda: asked)
    await asyncio.to_thread(mesh.server.restart)
    await eventually(lambda: bus.connected)
    await persist(lambda: bus.publish(Message("s.a", b"x")))
    assert await asyncio.wait_for(fetching, AT_ONCE_S) == b"x"


async def test_fetch_without_a_server_is_empty_and_does_not_spin(mesh: Mesh) -> None:
    bus = await mesh.connect()
    await bus.ensure_stream(STREAM)
    consumer = await bus.consumer(ConsumerSpec("S", ("s.>",), "d"))
    mesh.server.kill9()
    await eventually(lambda: not bus.connected)
    start = time.monotonic()
    fetched = [await consumer.fetch(1, 30.0) for _ in range(4)]
    assert fetched == [[], [], [], []]
    assert 0.4 < time.monotonic() - start < AT_ONCE_S


async def test_acks_without_a_server_raise_nothing(mesh: Mesh) -> None:
    bus = await mesh.connect()
    await bus.ensure_stream(STREAM)
    await bus.publish(Message("s.a", b"x"))
    consumer = await bus.consumer(ConsumerSpec("S", ("s.>",), "d", ack_wait_s=1.0))
    (delivery,) = await consumer.fetch(1, 5.0)
    mesh.server.kill9()
    await eventually(lambda: not bus.connected)
    await delivery.in_progress()
    await delivery.nak()
    await delivery.ack()


async def test_responder_answers_again_after_a_restart(mesh: Mesh) -> None:
    answering, asking = await mesh.connect(), await mesh.connect()

    async def answer(_subject: str, payload: bytes) -> bytes:
        return payload

    await answering.subscribe("rpc", answer, queue="q")
    await asyncio.to_thread(mesh.server.restart)
    assert await persist(lambda: asking.request("rpc", b"x", 1.0)) == b"x"


async def test_ephemeral_consumer_continues_after_a_kill(mesh: Mesh) -> None:
    bus = await mesh.connect()
    await bus.ensure_stream(STREAM)
    consumer = await bus.consumer(ConsumerSpec("S", ("s.>",), None))
    await asyncio.to_thread(mesh.server.restart)
    await persist(lambda: bus.publish(Message("s.a", b"x")))
    async with asyncio.timeout(AT_ONCE_S):
        while not (deliveries := await consumer.fetch(1, 1.0)):
            pass
    assert deliveries[0].stored.payload == b"x"


async def test_stored_messages_survive_a_kill(mesh: Mesh) -> None:
    bus = await mesh.connect()
    await bus.ensure_stream(STREAM)
    await bus.ensure_bucket(BucketSpec("b"))
    await bus.ensure_object_store("o")
    bucket, store = await bus.bucket("b"), await bus.object_store("o")
    await bus.publish_batch([Message("s.a", b"1"), Message("s.b", b"2")])
    await bucket.put("k", b"v")
    await store.put("name", b"data" * 100_000)
    assert bus.connections == 1
    await asyncio.to_thread(mesh.server.restart)
    page = await persist(lambda: bus.range("S", "s.>", 1))
    assert bus.connections > 1
    assert ([each.payload for each in page.messages], page.up_to) == ([b"1", b"2"], 2)
    entry = await bucket.get("k")
    assert entry is not None
    assert entry.value == b"v"
    assert await store.get("name") == b"data" * 100_000


async def test_blocked_fetch_polls_with_pauses(mesh: Mesh) -> None:
    bus, witness = await mesh.connect(), await mesh.connect()
    await bus.ensure_stream(STREAM)
    for _ in range(3):
        await bus.publish(Message("s.a", b"x"))
    consumer = await bus.consumer(ConsumerSpec("S", ("s.>",), "d", ack_pending_max=2, ack_wait_s=60.0))
    asked = await count_fetches(witness)
    # The first fetch leaves a request open, which the limit blocks; the second waits after it.
    taken = 0
    while taken < 2:
        taken += len(await consumer.fetch(10, 5.0))
    for limit in (1, 10):
        assert await consumer.fetch(limit, 0.5) == []
    assert len(asked) < 10


# Stalled.


async def test_stalled_server_is_unavailable_until_it_resumes(mesh: Mesh) -> None:
    bus = await mesh.connect()
    await bus.ensure_stream(STREAM)
    mesh.server.pause()
    try:
        start = time.monotonic()
        with pytest.raises(Unavailable):
            await bus.publish(Message("s.a", b"x", message_id="m"), timeout_s=0.3)
        assert time.monotonic() - start < AT_ONCE_S
    finally:
        mesh.server.resume()
    ack = await persist(lambda: bus.publish(Message("s.a", b"x", message_id="m")))
    # The attempt without an answer may have been stored: the message id dedupes it.
    assert ack.sequence == 1
    assert (await bus.stream_state("S")).messages == 1


# Connecting and closing.


async def test_connect_without_a_server_fails_at_the_deadline(mesh: Mesh) -> None:
    mesh.server.kill9()
    start = time.monotonic()
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1"):
        await mesh.connect(connect_timeout_s=0.5)
    assert 0.4 < time.monotonic() - start < AT_ONCE_S


async def test_connect_waits_for_a_late_server(mesh: Mesh) -> None:
    mesh.server.kill9()
    connecting = asyncio.create_task(mesh.connect(connect_timeout_s=60.0))
    async with knocks(mesh.server.port) as knocked:
        await eventually(lambda: knocked)
    await asyncio.to_thread(mesh.server.start)
    assert (await connecting).connected


async def test_wrong_password_is_denied_at_once(mesh: Mesh) -> None:
    with pytest.raises(Denied, match="credentials"):
        await asyncio.wait_for(mesh.connect(User("admin", "wrong"), connect_timeout_s=60.0), AT_ONCE_S)


async def test_user_without_inbox_permission_is_denied_at_once(mesh: Mesh) -> None:
    with pytest.raises(Denied, match=r"_INBOX\.deaf"):
        await asyncio.wait_for(mesh.connect(DEAF, connect_timeout_s=60.0), AT_ONCE_S)


async def test_cancelled_connect_leaves_nothing(mesh: Mesh) -> None:
    mesh.server.kill9()
    async with knocks(mesh.server.port) as knocked:
        connecting = asyncio.create_task(mesh.connect(connect_timeout_s=60.0))
        await eventually(lambda: len(knocked) > 1)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting


async def test_bus_can_be_closed_without_a_server(mesh: Mesh) -> None:
    bus = await mesh.connect()
    await bus.ensure_stream(STREAM)
    await bus.consumer(ConsumerSpec("S", ("s.>",), None))
    waiting = asyncio.create_task(bus.publish(Message("s.a", b"x"), timeout_s=60.0))
    mesh.server.kill9()
    await eventually(lambda: not bus.connected)
    await asyncio.wait_for(bus.close(), AT_ONCE_S)
    with contextlib.suppress(Disconnected):
        await asyncio.wait_for(waiting, AT_ONCE_S)


# Denied.


async def test_denial_is_quick_and_names_the_subject(mesh: Mesh) -> None:
    admin, writer = await mesh.connect(), await mesh.connect(WRITER)
    await admin.ensure_stream(STREAM)
    for attempt in (
        writer.publish(Message("s.other", b"x"), timeout_s=60.0),
        writer.range("S", "s.>", 1, timeout_s=60.0),
    ):
        start = time.monotonic()
        with pytest.raises(Denied, match=r"do not allow to publish to (s\.other|\$JS\.API\.DIRECT\.GET\.S)$"):
            await attempt
        assert time.monotonic() - start < AT_ONCE_S
    assert (await writer.publish(Message("s.writer.a", b"x"))).sequence == 1


async def test_unknown_stream_without_permission_is_unavailable(mesh: Mesh) -> None:
    admin, writer = await mesh.connect(), await mesh.connect(WRITER)
    with pytest.raises(StreamMissing):
        await admin.publish(Message("s.writer.a", b"x"))
    with pytest.raises(Unavailable, match="do not allow"):
        await writer.publish(Message("s.writer.a", b"x"))


async def test_client_reconnects_after_credentials_are_restored(mesh: Mesh) -> None:
    bus = await mesh.connect()
    await bus.ensure_stream(STREAM)
    consumer = await bus.consumer(ConsumerSpec("S", ("s.>",), "d"))
    mesh.server.reload((User("admin", "another-password"),))
    await eventually(lambda: not bus.connected)
    with pytest.raises(Disconnected):
        await bus.publish(Message("s.a", b"x"), timeout_s=0.3)
    mesh.server.reload((ADMIN,))
    await eventually(lambda: bus.connected)
    await bus.publish(Message("s.a", b"x"))
    assert [each.stored.payload for each in await consumer.fetch(1, 5.0)] == [b"x"]


async def test_bus_can_be_closed_while_it_is_refused(mesh: Mesh) -> None:
    bus = await mesh.connect()
    mesh.server.reload((User("admin", "another-password"),))
    await eventually(lambda: not bus.connected)
    await eventually(lambda: "authentication error" in mesh.server.log_text)
    await asyncio.wait_for(bus.close(), AT_ONCE_S)


async def test_message_above_the_server_limit_keeps_the_connection(mesh: Mesh) -> None:
    bus = await mesh.connect()
    await bus.ensure_stream(STREAM)
    limit = mesh.server.max_payload_bytes
    for message in (
        Message("s.a", bytes(limit + 1)),
        # The headers make it too large.
        Message("s.a", bytes(limit - 10), message_id="m"),
    ):
        with pytest.raises(TooLarge):
            await bus.publish(message)
    assert (await bus.publish(Message("s.a", bytes(limit - 1000), message_id="m"))).sequence == 1
    assert not any("lost" in text for text in mesh.errors)
