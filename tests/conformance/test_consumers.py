"""Consumers: delivery, redelivery, start and resumption."""

from __future__ import annotations

import asyncio

import pytest
from anchorwatch.bus.port import (
    Bus,
    Consumer,
    ConsumerSpec,
    Delivery,
    Disconnected,
    Message,
    StreamMissing,
)
from anchorwatch.core.errors import BadInput, ConfigDiffers, NotFound

from tests.conformance.worlds import World

# No redelivery by itself, except in tests of it.
ACK_WAIT_S = 60.0
SHORT_ACK_WAIT_S = 1.0
# Longer than any redelivery takes.
SOON_S = 30.0
A_MOMENT_S = 0.3


async def publish(world: World, bus: Bus, *names: str) -> None:
    for name in names:
        await bus.publish(Message(world.subject(f"s.{name}"), name.encode()))


async def consume(world: World, bus: Bus, stream: str, **options: object) -> Consumer:
    options = {"filters": (world.subject("s.>"),), "durable": "d", "ack_wait_s": ACK_WAIT_S} | options
    return await bus.consumer(ConsumerSpec(stream=stream, **options))  # type: ignore[arg-type]  # its own fields


async def receive(consumer: Consumer, count: int, limit: int = 10) -> list[Delivery]:
    """At least ``count`` messages; a busy machine may deliver them one by one."""
    deliveries: list[Delivery] = []
    while len(deliveries) < count:
        batch = await consumer.fetch(limit - len(deliveries), SOON_S)
        assert batch, f"{len(deliveries)} of {count} came"
        deliveries += batch
    return deliveries


async def take(consumer: Consumer, count: int = 1, limit: int = 10) -> list[tuple[bytes, int]]:
    """Fetch and ack; returns payloads and attempts."""
    deliveries = await receive(consumer, count, limit)
    for delivery in deliveries:
        await delivery.ack()
    return [(delivery.stored.payload, delivery.attempt) for delivery in deliveries]


async def test_fetch_returns_messages_in_order_up_to_the_limit(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await publish(world, bus, "a", "b", "c")
    consumer = await consume(world, bus, stream)
    first = await receive(consumer, 2, limit=2)
    assert [(each.stored.payload, each.stored.sequence, each.attempt) for each in first] == [
        (b"a", 1, 1),
        (b"b", 2, 1),
    ]
    assert await take(consumer) == [(b"c", 1)]


async def test_delivery_has_the_whole_message(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await bus.publish(Message(world.subject("s.a"), b"x", message_id="m", headers={"K": "v"}))
    (read,) = (await bus.range(stream, world.subject("s.a"), 1)).messages
    (delivery,) = await (await consume(world, bus, stream)).fetch(1, SOON_S)
    got = delivery.stored
    assert (got.subject, got.sequence, got.time_ms, got.payload) == (read.subject, 1, read.time_ms, b"x")
    assert (got.message_id, got.headers["K"]) == ("m", "v")


async def test_publisher_headers_cannot_imitate_the_server(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    for status in ("404", "408", "409", "503"):
        await bus.publish(Message(world.subject("s.a"), b"", headers={"Status": status}))
    consumer = await consume(world, bus, stream)
    assert [each.stored.headers["Status"] for each in await receive(consumer, 4)] == [
        "404",
        "408",
        "409",
        "503",
    ]


async def test_fetch_without_messages_is_empty_after_the_timeout(world: World, bus: Bus) -> None:
    consumer = await consume(world, bus, await world.make_stream(bus))
    assert await consumer.fetch(1, A_MOMENT_S) == []
    assert await consumer.fetch(5, 0) == []


@pytest.mark.parametrize("limit", [1, 10])
async def test_waiting_fetch_gets_a_new_message_at_once(world: World, bus: Bus, limit: int) -> None:
    consumer = await consume(world, bus, await world.make_stream(bus))
    waiting = asyncio.create_task(consumer.fetch(limit, 2 * world.at_once_s))
    await world.advance(0.05)
    assert not waiting.done()
    await publish(world, bus, "a")
    await world.until(lambda: _done(waiting), world.at_once_s)
    assert [each.stored.payload for each in waiting.result()] == [b"a"]


async def _done(task: asyncio.Task[object]) -> bool:
    return task.done()


async def test_unacked_message_is_redelivered_after_the_ack_wait(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await publish(world, bus, "a")
    consumer = await consume(world, bus, stream, ack_wait_s=SHORT_ACK_WAIT_S)
    for attempt in (1, 2):
        asked_at_ms = world.now_ms()
        assert [each.attempt for each in await receive(consumer, 1)] == [attempt]
    assert await take(consumer) == [(b"a", 3)]
    assert world.now_ms() - asked_at_ms >= SHORT_ACK_WAIT_S * 1000
    assert await consumer.fetch(1, SHORT_ACK_WAIT_S * 1.5) == []


async def test_nak_redelivers_at_once(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await publish(world, bus, "a")
    consumer = await consume(world, bus, stream, ack_wait_s=30.0)
    for attempt in (1, 2, 3):
        (delivery,) = await consumer.fetch(1, SOON_S)
        assert delivery.attempt == attempt
        await delivery.nak()


async def test_nak_with_a_delay_redelivers_later(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await publish(world, bus, "a")
    consumer = await consume(world, bus, stream, ack_wait_s=30.0)
    (delivery,) = await consumer.fetch(1, SOON_S)
    naked_at_ms = world.now_ms()
    await delivery.nak(delay_s=1.0)
    assert await take(consumer) == [(b"a", 2)]
    assert world.now_ms() - naked_at_ms >= 1000


async def test_in_progress_restarts_the_ack_wait(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await publish(world, bus, "a")
    consumer = await consume(world, bus, stream, ack_wait_s=3.0)
    (delivery,) = await consumer.fetch(1, SOON_S)
    for _ in range(3):
        await world.advance(1.0)
        told_at_ms = world.now_ms()
        await delivery.in_progress()
    assert await take(consumer) == [(b"a", 2)]
    assert world.now_ms() - told_at_ms >= 3000


async def test_late_ack_of_an_old_delivery_counts(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await publish(world, bus, "a")
    consumer = await consume(world, bus, stream, ack_wait_s=SHORT_ACK_WAIT_S)
    (stale,) = await consumer.fetch(1, SOON_S)
    (second,) = await consumer.fetch(1, SOON_S)
    assert second.attempt == 2
    await stale.ack()
    assert await consumer.fetch(1, SHORT_ACK_WAIT_S * 1.5) == []
    assert (await consumer.state()).ack_pending == 0


async def test_repeated_ack_or_ack_after_nak_has_no_effect(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await publish(world, bus, "a", "b")
    consumer = await consume(world, bus, stream, ack_wait_s=SHORT_ACK_WAIT_S)
    first, second = await receive(consumer, 2)
    await first.ack()
    await first.ack()
    await second.ack()
    assert await consumer.fetch(1, SHORT_ACK_WAIT_S * 1.5) == []


async def test_unacked_messages_stay_within_the_limit(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await publish(world, bus, "a", "b", "c")
    consumer = await consume(world, bus, stream, ack_pending_max=2, ack_wait_s=30.0)
    out = await receive(consumer, 2)
    assert [each.stored.payload for each in out] == [b"a", b"b"]
    assert await consumer.fetch(10, A_MOMENT_S) == []
    await out[0].ack()
    assert await take(consumer) == [(b"c", 1)]


async def test_durable_consumer_resumes_at_its_position(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await publish(world, bus, "a", "b")
    consumer = await consume(world, bus, stream)
    assert await take(consumer, limit=1) == [(b"a", 1)]
    await consumer.close()
    await publish(world, bus, "c")
    again = await consume(world, await world.connect(), stream)
    assert await take(again, 2, limit=2) == [(b"b", 1), (b"c", 1)]


async def test_readers_of_one_durable_share_its_messages(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await publish(world, bus, "a", "b")
    one = await consume(world, bus, stream)
    two = await consume(world, await world.connect(), stream)
    assert await take(one, limit=1) == [(b"a", 1)]
    assert await take(two, limit=1) == [(b"b", 1)]


async def test_reader_that_does_not_fetch_receives_nothing(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    one = await consume(world, bus, stream, ack_wait_s=30.0)
    two = await consume(world, await world.connect(), stream, ack_wait_s=30.0)
    waiting = asyncio.create_task(one.fetch(10, 30.0))
    await world.advance(0.05)
    await publish(world, bus, "a")
    await waiting
    await publish(world, bus, "b", "c")
    assert await take(two, 2) == [(b"b", 1), (b"c", 1)]


async def test_ephemeral_consumer_reads_all_and_leaves_nothing(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await publish(world, bus, "a")
    assert await take(await consume(world, bus, stream)) == [(b"a", 1)]
    one, two = [await consume(world, bus, stream, durable=None) for _ in range(2)]
    assert await take(one) == await take(two) == [(b"a", 1)]
    await one.close()
    await publish(world, bus, "b")
    assert await take(two) == [(b"b", 1)]


async def test_consumer_begins_at_the_requested_sequence(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await publish(world, bus, "a", "b", "c")
    consumer = await consume(world, bus, stream, start_sequence=2)
    assert await take(consumer, 2) == [(b"b", 1), (b"c", 1)]
    beyond = await consume(world, bus, stream, durable="beyond", start_sequence=5)
    await publish(world, bus, "d", "e")
    assert await take(beyond) == [(b"e", 1)]


async def test_consumer_begins_at_the_requested_time(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await publish(world, bus, "a")
    await world.advance(0.2)
    between_ms = await bus.server_time_ms()
    await world.advance(0.2)
    await publish(world, bus, "b")
    assert await take(await consume(world, bus, stream, start_time_ms=between_ms)) == [(b"b", 1)]


async def test_consumer_delivers_matches_of_any_filter(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await publish(world, bus, "a.x", "b.x", "c.x", "a.y")
    filters = (world.subject("s.a.>"), world.subject("s.c.*"))
    consumer = await consume(world, bus, stream, filters=filters)
    assert await take(consumer, 3) == [(b"a.x", 1), (b"c.x", 1), (b"a.y", 1)]


async def test_consumer_reports_its_position(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await publish(world, bus, "a", "b", "c")
    consumer = await consume(world, bus, stream, ack_wait_s=30.0)
    first, _ = await receive(consumer, 2, limit=2)
    await first.ack()

    async def acked() -> bool:
        return (await consumer.state()).ack_pending == 1

    await world.until(acked)
    state = await consumer.state()
    assert (state.delivered_sequence, state.ack_floor_sequence, state.pending) == (2, 1, 1)


async def test_durable_consumers_are_listed_with_their_positions(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await publish(world, bus, "a", "b", "c")
    done = await consume(world, bus, stream, durable="done")
    assert len(await take(done, 3)) == 3
    await consume(world, bus, stream, durable="behind")
    await consume(world, bus, stream, durable=None)

    async def all_acked() -> bool:
        return (await done.state()).ack_floor_sequence == 3

    await world.until(all_acked)
    states = await bus.consumer_states(stream)
    assert {name: (state.ack_floor_sequence, state.pending) for name, state in states.items()} == {
        "done": (3, 0),
        "behind": (0, 3),
    }
    with pytest.raises(StreamMissing):
        await bus.consumer_states(world.stream("NONE"))


async def test_consumer_with_another_start_is_attached_to(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await publish(world, bus, "a", "b")
    await consume(world, bus, stream, start_sequence=2)
    assert await take(await consume(world, bus, stream)) == [(b"b", 1)]


async def test_consumer_with_other_filters_differs(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await consume(world, bus, stream)
    other = world.subject("s.other.>")
    with pytest.raises(ConfigDiffers, match=f"filters {other} wanted, {world.subject('s.>')} found"):
        await consume(world, bus, stream, filters=(other,))


async def test_filters_of_an_earlier_release_are_replaced_in_place(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    before, now = (world.subject("s.a"), world.subject("s.b")), (world.subject("s.a"), world.subject("s.c"))
    consumer = await consume(world, bus, stream, filters=before)
    await publish(world, bus, "a", "b")
    assert await take(consumer, 2) == [(b"a", 1), (b"b", 1)]
    await consumer.close()
    consumer = await consume(world, bus, stream, filters=now, filters_before=before)
    await publish(world, bus, "a", "b", "c")
    assert [await take(consumer, limit=1), await take(consumer, limit=1)] == [[(b"a", 1)], [(b"c", 1)]]
    with pytest.raises(ConfigDiffers, match="filters"):
        await consume(world, bus, stream, filters=before)


async def test_consumer_with_another_ack_wait_differs(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await consume(world, bus, stream, ack_wait_s=1.0)
    with pytest.raises(ConfigDiffers, match=r"ack_wait 2\.5 s wanted, 1 s found"):
        await consume(world, bus, stream, ack_wait_s=2.5)


async def test_deleted_consumer_is_not_found(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    consumer = await consume(world, bus, stream)
    await bus.delete_consumer(stream, "d")
    with pytest.raises(NotFound):
        await consumer.fetch(1, SOON_S)
    with pytest.raises(NotFound):
        await consumer.state()
    with pytest.raises(NotFound):
        await bus.delete_consumer(stream, "d")


async def test_waiting_fetch_of_a_deleted_consumer_is_not_found(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    consumer = await consume(world, bus, stream)
    waiting = asyncio.create_task(consumer.fetch(1, 1.0))
    await world.advance(0.05)
    await bus.delete_consumer(stream, "d")

    async def fetched_until_lost() -> None:
        await waiting
        while True:
            await consumer.fetch(1, 1.0)

    with pytest.raises(NotFound):
        await asyncio.wait_for(fetched_until_lost(), SOON_S)


async def test_consumer_without_a_stream_is_reported(world: World, bus: Bus) -> None:
    with pytest.raises(StreamMissing):
        await consume(world, bus, world.stream("NOPE"))


async def test_fetch_of_no_messages_is_bad_input(world: World, bus: Bus) -> None:
    consumer = await consume(world, bus, await world.make_stream(bus))
    with pytest.raises(BadInput):
        await consumer.fetch(0, 1.0)


async def test_cancelled_fetch_loses_no_message(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    consumer = await consume(world, bus, stream)
    waiting = asyncio.create_task(consumer.fetch(1, 30.0))
    await world.advance(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await publish(world, bus, "a")
    assert [payload for payload, _ in await take(consumer)] == [b"a"]


async def test_fetch_of_a_closed_consumer_is_reported(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    consumer = await consume(world, bus, stream)
    await consumer.close()
    await consumer.close()
    with pytest.raises(Disconnected):
        await consumer.fetch(1, 1.0)
    other = await world.connect()
    consumer = await consume(world, other, stream)
    waiting = asyncio.create_task(consumer.fetch(1, 2 * world.at_once_s))
    await world.advance(0.05)
    await other.close()
    with pytest.raises(Disconnected):
        await asyncio.wait_for(waiting, world.at_once_s)


async def test_acked_message_leaves_a_work_queue(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus, work_queue=True)
    await publish(world, bus, "a", "b")
    consumer = await consume(world, bus, stream)
    first, _ = await receive(consumer, 2, limit=2)
    await first.ack()

    async def one_left() -> bool:
        return (await bus.stream_state(stream)).messages == 1

    await world.until(one_left)


async def test_purged_messages_are_not_delivered(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    await publish(world, bus, "a", "b")
    await bus.purge(stream, world.subject("s.a"))
    assert await take(await consume(world, bus, stream)) == [(b"b", 1)]
