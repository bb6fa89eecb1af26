"""The JetStream bus with only its listed permissions, and together with plain NATS clients."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from anchorwatch.bus import jetstream
from anchorwatch.bus.jetstream import JetStreamBus
from anchorwatch.bus.port import ConsumerSpec, Message, StreamMissing
from anchorwatch.topology.streams import BucketSpec, Source, StreamSpec

from tests.support.eventually import eventually
from tests.support.nats_server import NatsServer, User, running_server

ADMIN = User("admin", "admin-password")
# The list in the docstring of anchorwatch.bus.jetstream.
WORKER = User(
    "worker",
    "worker-password",
    publish=(
        "s.>",
        "$JS.API.STREAM.NAMES",
        "$JS.API.DIRECT.GET.S",
        "$JS.API.CONSUMER.INFO.S.d",
        "$JS.API.CONSUMER.CREATE.S.d",
        "$JS.API.CONSUMER.CREATE.S.d.s.>",
        "$JS.API.CONSUMER.MSG.NEXT.S.d",
        "$JS.ACK.S.d.>",
        "$JS.API.CONSUMER.INFO.S.*",
        "$JS.API.CONSUMER.CREATE.S.*.s.>",
        "$JS.API.CONSUMER.MSG.NEXT.S.*",
        "$JS.ACK.S.*.>",
        "$JS.API.CONSUMER.DELETE.S.*",
        "$JS.API.DIRECT.GET.KV_b.$KV.b.>",
        "$KV.b.>",
        "$JS.API.CONSUMER.INFO.KV_b.*",
        "$JS.API.CONSUMER.CREATE.KV_b.*.$KV.b.>",
        "$JS.API.CONSUMER.MSG.NEXT.KV_b.*",
        "$JS.ACK.KV_b.*.>",
        "$JS.API.CONSUMER.DELETE.KV_b.*",
        "$JS.API.STREAM.INFO.KV_b",
        "$O.o.>",
        "$JS.API.DIRECT.GET.OBJ_o",
        "$JS.API.DIRECT.GET.OBJ_o.>",
        "$JS.API.STREAM.PURGE.OBJ_o",
        "$SYS.REQ.USER.INFO",
    ),
    subscribe=("_INBOX.worker.>",),
)
STREAM = StreamSpec("S", ("s.>",), atomic_batches=True)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with running_server(tmp_path, (ADMIN, WORKER)) as server:
        yield server


async def connect(server: NatsServer, user: User, report: list[str]) -> JetStreamBus:
    return await jetstream.connect(
        server.url,
        user=user.name,
        password=user.password,
        name=user.name,
        inbox=f"_INBOX.{user.name}",
        on_error=report.append,
    )


async def make(bus: JetStreamBus) -> None:
    await bus.ensure_stream(STREAM)
    await bus.ensure_bucket(BucketSpec("b"))
    await bus.ensure_object_store("o")


async def test_each_operation_needs_only_its_listed_permissions(server: NatsServer) -> None:
    report: list[str] = []
    admin, worker = await connect(server, ADMIN, report), await connect(server, WORKER, report)
    await make(admin)
    await worker.publish(Message("s.a", b"1"))
    await worker.publish_batch([Message("s.a", b"2"), Message("s.b", b"3")])
    assert len((await worker.last("S", ["s.>"])).messages) == 2
    assert (await worker.last("S", ["s.none"])).up_to == 3
    assert (await worker.range("S", "s.none", 1)).up_to == 3
    for durable in ("d", None):
        consumer = await worker.consumer(ConsumerSpec("S", ("s.>",), durable))
        deliveries = await consumer.fetch(10, 5.0)
        assert len(deliveries) == 3
        for delivery in deliveries:
            await delivery.ack()
        await consumer.state()
        await consumer.close()
    bucket, store = await worker.bucket("b"), await worker.object_store("o")
    await bucket.update("k", b"2", await bucket.create("k", b"1"))
    assert await bucket.get("k") is not None
    assert await bucket.keys() == ["k"]
    assert await bucket.revision() == 2
    await bucket.delete("k")
    await store.put("name", b"data" * 100_000)
    assert await store.get("name") == b"data" * 100_000
    await store.delete("name")
    await worker.server_time_ms()
    await worker.close()
    await admin.close()
    assert report == []


async def test_missing_stream_is_recognized_with_one_permission(server: NatsServer) -> None:
    worker = await connect(server, WORKER, [])
    with pytest.raises(StreamMissing):
        await worker.publish(Message("s.a", b"x"))
    await worker.close()


async def test_plain_client_shares_buckets_and_objects(server: NatsServer) -> None:
    bus = await connect(server, ADMIN, [])
    await make(bus)
    client = await nats.connect(server.url, user=ADMIN.name, password=ADMIN.password)
    try:
        context = client.jetstream()
        ours, theirs = await bus.bucket("b"), await context.key_value("b")
        await ours.put("k.ours", b"1")
        await theirs.put("k.theirs", b"2")
        assert (await theirs.get("k.ours")).value == b"1"
        entry = await ours.get("k.theirs")
        assert entry is not None
        assert entry.value == b"2"
        assert sorted(await theirs.keys()) == await ours.keys() == ["k.ours", "k.theirs"]
        await theirs.delete("k.ours")
        assert await ours.get("k.ours") is None
        await ours.create("k.ours", b"3")

        data = b"data" * 100_000
        store, their_store = await bus.object_store("o"), await context.object_store("o")
        await store.put("ours", data)
        await their_store.put("theirs", data)
        assert (await their_store.get("ours")).data == data
        assert await store.get("theirs") == data
        assert {info.name for info in await their_store.list()} == {"ours", "theirs"}
    finally:
        await client.close()
        await bus.close()


async def test_plain_client_reads_the_anchor_view(server: NatsServer) -> None:
    bus = await connect(server, ADMIN, [])
    await bus.ensure_stream(STREAM)
    source = Source("S", "s.*.*.p.anchor", "$KV.view.{{wildcard(1)}}.{{wildcard(2)}}")
    await bus.ensure_bucket(BucketSpec("view", sources=(source,)))
    client = await nats.connect(server.url, user=ADMIN.name, password=ADMIN.password)
    try:
        view = await client.jetstream().key_value("view")
        watcher = await view.watchall()
        seen: list[bytes | None] = []

        async def watch() -> None:
            async for entry in watcher:
                seen.append(entry and entry.value)  # noqa: PERF401 - it is looked at meanwhile

        watching = asyncio.create_task(watch())
        for n in range(3):
            payload = hashlib.sha256(bytes([n])).digest()
            await bus.publish(Message("s.ws.fleet.p.anchor", payload))
        await eventually(lambda: payload in seen)
        assert (await view.get("ws.fleet")).value == payload
        assert await view.keys() == ["ws.fleet"]
        await watcher.stop()  # type: ignore[no-untyped-call]  # of nats-py
        await asyncio.wait_for(watching, 5)
    finally:
        await client.close()
        await bus.close()
