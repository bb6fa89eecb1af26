"""The JetStream bus on three servers: operations survive elections, and reads have a completeness sequence."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest
from anchorwatch.bus import jetstream
from anchorwatch.bus.jetstream import JetStreamBus
from anchorwatch.bus.port import ConsumerSpec, Expect, Message, WrongLastSequence
from anchorwatch.core.errors import Unavailable
from anchorwatch.topology.streams import StreamSpec

from tests.support.eventually import eventually, persist
from tests.support.nats_server import Cluster, running_cluster

RETRY_S = 0.1
# An election takes 4.5-8 s.
ELECTION_S_MAX = 40.0
JOURNAL = StreamSpec("J", ("j.>",), atomic_batches=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


async def connect(servers: str | list[str], name: str) -> JetStreamBus:
    """A bus that has made the stream, once the cluster has a leader."""
    bus = await jetstream.connect(servers, user=None, password=None, name=name, replicas=3)
    await persist(lambda: bus.ensure_stream(JOURNAL), ELECTION_S_MAX)
    return bus


class Writer:
    """Appends to one chain as a planner does: fenced, one message id for all retries, read back in doubt."""

    def __init__(self, bus: JetStreamBus) -> None:
        self._bus = bus
        self.acked: list[int] = []

    async def append(self, payload: bytes) -> None:
        expect = Expect("j.a.p.>", self.acked[-1] if self.acked else 0)
        message = Message("j.a.p.anchor", payload, message_id=payload.decode(), expect=expect)
        async with asyncio.timeout(ELECTION_S_MAX):
            while True:
                try:
                    self.acked.append((await self._bus.publish(message, timeout_s=2.0)).sequence)
                    return
                except (Unavailable, WrongLastSequence):
                    # Only this error: a missing leader must not look like a missing stream.
                    await asyncio.sleep(RETRY_S)
                if (found := await self._find(message)) is not None:
                    self.acked.append(found)
                    return

    async def _find(self, message: Message) -> int | None:
        try:
            page = await self._bus.last("J", [message.subject], timeout_s=2.0)
        except Unavailable:
            return None
        return next((each.sequence for each in page.messages if each.message_id == message.message_id), None)


async def test_read_has_every_message_up_to_its_sequence(cluster: Cluster) -> None:
    """Write through one server and read from each: an answer must be complete up to its own sequence."""
    buses = [await connect(url, "any") for url in cluster.urls]
    short = 0
    for n in range(100):
        writer, reader = buses[n % 3], buses[(n + 1) % 3]
        sequence = (await writer.publish(Message(f"j.s{n}.in", b"x"))).sequence
        last = await reader.last("J", [f"j.s{n}.in"])
        tail = await reader.range("J", "j.*.in", sequence)
        nothing = await reader.range("J", f"j.s{n}.in", sequence + 1)
        for page in (last, tail):
            assert page.up_to < sequence or [each.sequence for each in page.messages] == [sequence]
            short += page.up_to < sequence
        assert nothing.messages == ()
    assert short < 200
    for bus in buses:
        await bus.close()


async def test_bus_operations_survive_the_death_of_the_leader(cluster: Cluster) -> None:
    bus, reader_bus = await connect(cluster.urls, "writer"), await connect(cluster.urls, "reader")
    consumer = await reader_bus.consumer(ConsumerSpec("J", ("j.a.>",), "d", ack_wait_s=2.0))
    writer = Writer(bus)
    seen: list[int] = []
    done = asyncio.Event()

    async def write() -> None:
        for n in itertools.count():
            if done.is_set():
                return
            await writer.append(f"m{n}".encode())

    async def consume() -> None:
        # The last append is in flight at the stop.
        while not writing.done() or seen[-1:] < writer.acked[-1:]:
            for delivery in await consumer.fetch(50, 1.0):
                seen.append(delivery.stored.sequence)
                await delivery.ack()

    async def written(more: int) -> None:
        goal = len(writer.acked) + more
        await eventually(lambda: len(writer.acked) >= goal, ELECTION_S_MAX)

    writing = asyncio.create_task(write())
    consuming = asyncio.create_task(consume())
    await written(50)
    killed = cluster.named(await bus.leader("J"))
    await asyncio.to_thread(killed.kill9)
    await written(50)
    await asyncio.to_thread(killed.start)
    await written(50)
    done.set()
    async with asyncio.timeout(ELECTION_S_MAX):
        await asyncio.gather(writing, consuming)

    # Every acknowledged message is stored once, in order, and was delivered.
    page = await bus.range("J", "j.a.p.anchor", 1, limit=10_000, reach=writer.acked[-1])
    assert page.up_to >= writer.acked[-1]
    assert [each.sequence for each in page.messages] == writer.acked
    assert len({each.message_id for each in page.messages}) == len(writer.acked)
    assert sorted(set(seen)) == writer.acked
    await bus.close()
    await reader_bus.close()
