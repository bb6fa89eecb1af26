"""Storing single messages: sequences, fences, message ids, limits."""

from __future__ import annotations

import asyncio

import pytest
from anchorwatch.bus.port import (
    Bus,
    ConsumerSpec,
    Disconnected,
    Expect,
    Message,
    StreamMissing,
    WrongLastSequence,
)
from anchorwatch.core.errors import TooLarge
from anchorwatch.topology.streams import DEDUPE_WINDOW_S_MIN

from tests.conformance.worlds import PLAIN, NatsWorld, World

UNREAD_BY_PLAIN = frozenset("\x0b\x0c")
"""nats-py takes every white space for the end of a subject, the server only a blank, a tab and the ends of lines."""


async def test_sequences_of_a_stream_grow_by_one(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    acks = [await bus.publish(Message(world.subject(f"s.{n}"), b"x")) for n in range(3)]
    assert [(ack.stream, ack.sequence, ack.duplicate) for ack in acks] == [
        (stream, 1, False),
        (stream, 2, False),
        (stream, 3, False),
    ]


async def test_stored_message_is_read_back_unchanged(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    subject = world.subject("s.a")
    payload = bytes(range(256))
    before_ms = world.now_ms()
    await bus.publish(
        Message(subject, payload, message_id="m-1", headers={"Aw-Kind": "Straße", "Aw-Empty": ""})
    )
    (stored,) = (await bus.last(stream, [subject])).messages
    assert (stored.subject, stored.sequence, stored.payload, stored.message_id) == (
        subject,
        1,
        payload,
        "m-1",
    )
    assert stored.headers["Aw-Kind"] == "Straße"
    assert before_ms - 1000 <= stored.time_ms <= world.now_ms() + 1000


@pytest.mark.parametrize("odd", ["a\u2028b", "a\u00a0b", "a\x0bb", "a\x0cb", "a\x00b", "\u202eab"])
async def test_subject_may_hold_any_character_but_a_blank(world: World, bus: Bus, odd: str) -> None:
    stream = await world.make_stream(bus)
    subject = world.subject(f"s.{odd}")
    await bus.publish(Message(subject, b"x"))
    consumer = await bus.consumer(ConsumerSpec(stream, (world.subject("s.>"),), "c"))
    if not (isinstance(world, NatsWorld) and PLAIN and set(odd) & UNREAD_BY_PLAIN):
        (delivery,) = await consumer.fetch(5, 20.0)
        assert delivery.stored.subject == subject
    assert [each.subject for each in (await bus.range(stream, ">", 1)).messages] == [subject]


async def test_fence_of_zero_needs_an_unused_subject(world: World, bus: Bus) -> None:
    await world.make_stream(bus)
    subject = world.subject("s.a")
    await bus.publish(Message(world.subject("s.other"), b"x"))
    ack = await bus.publish(Message(subject, b"first", expect=Expect(subject, 0)))
    assert ack.sequence == 2
    with pytest.raises(WrongLastSequence):
        await bus.publish(Message(subject, b"second", expect=Expect(subject, 0)))


async def test_fence_on_the_subject_itself_holds_or_refuses(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    subject = world.subject("s.a")
    first = await bus.publish(Message(subject, b"1", expect=Expect(subject, 0)))
    second = await bus.publish(Message(subject, b"2", expect=Expect(subject, first.sequence)))
    for stale in (0, first.sequence, second.sequence + 1):
        with pytest.raises(WrongLastSequence):
            await bus.publish(Message(subject, b"3", expect=Expect(subject, stale)))
    assert (await bus.stream_state(stream)).messages == 2


async def test_fence_on_a_family_covers_its_subjects_only(world: World, bus: Bus) -> None:
    await world.make_stream(bus)
    family = world.subject("s.p.>")
    a, b, outside = (world.subject(name) for name in ("s.p.a", "s.p.b.c", "s.q.a"))
    first = await bus.publish(Message(a, b"1", expect=Expect(family, 0)))
    await bus.publish(Message(outside, b"x"))
    second = await bus.publish(Message(b, b"2", expect=Expect(family, first.sequence)))
    with pytest.raises(WrongLastSequence):
        await bus.publish(Message(a, b"3", expect=Expect(family, first.sequence)))
    third = await bus.publish(Message(a, b"3", expect=Expect(family, second.sequence)))
    assert third.sequence == 4


async def test_fenced_subject_may_differ_from_the_published_one(world: World, bus: Bus) -> None:
    await world.make_stream(bus)
    guard, target = world.subject("s.guard"), world.subject("s.target")
    guarded = await bus.publish(Message(guard, b"g"))
    await bus.publish(Message(target, b"1", expect=Expect(guard, guarded.sequence)))
    await bus.publish(Message(target, b"2", expect=Expect(guard, guarded.sequence)))
    await bus.publish(Message(guard, b"g2"))
    with pytest.raises(WrongLastSequence):
        await bus.publish(Message(target, b"3", expect=Expect(guard, guarded.sequence)))


async def test_subject_without_a_stream_is_reported(world: World, bus: Bus) -> None:
    with pytest.raises(StreamMissing, match=world.subject("nowhere")):
        await bus.publish(Message(world.subject("nowhere"), b"x"))


async def test_message_above_the_stream_limit_is_refused(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus, message_bytes_max=1000)
    with pytest.raises(TooLarge):
        await bus.publish(Message(world.subject("s.a"), b"x" * 1001))
    await bus.publish(Message(world.subject("s.a"), b"x" * 900))
    assert (await bus.stream_state(stream)).messages == 1


async def test_message_id_within_the_window_is_stored_once(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus, dedupe_window_s=30.0)
    subject = world.subject("s.a")
    first = await bus.publish(Message(subject, b"1", message_id="m"))
    again = await bus.publish(Message(world.subject("s.b"), b"another body", message_id="m"))
    assert (first.duplicate, again.duplicate, again.sequence) == (False, True, first.sequence)
    assert (await bus.stream_state(stream)).messages == 1


async def test_message_id_after_the_window_is_stored_again(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus, dedupe_window_s=0.5)
    message = Message(world.subject("s.a"), b"1", message_id="m")
    await bus.publish(message)
    await world.advance(1.5)
    again = await bus.publish(message)
    assert (again.duplicate, again.sequence) == (False, 2)
    assert (await bus.stream_state(stream)).messages == 2


async def test_smallest_dedupe_window_ends_within_200_ms(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus, dedupe_window_s=DEDUPE_WINDOW_S_MIN)
    messages = [Message(world.subject(f"s.{name}"), b"1", message_id="1") for name in ("a", "b")]
    assert not (await bus.publish(messages[0])).duplicate
    await world.advance(0.2)
    assert not (await bus.publish(messages[1])).duplicate
    assert (await bus.stream_state(stream)).messages == 2


async def test_retry_does_not_extend_the_dedupe_window(world: World, bus: Bus) -> None:
    await world.make_stream(bus, dedupe_window_s=3.0)
    message = Message(world.subject("s.a"), b"1", message_id="m")
    await bus.publish(message)
    await world.advance(1.0)
    assert (await bus.publish(message)).duplicate
    await world.advance(2.5)
    assert not (await bus.publish(message)).duplicate


async def test_fence_is_checked_before_the_message_id(world: World, bus: Bus) -> None:
    await world.make_stream(bus)
    subject = world.subject("s.a")
    message = Message(subject, b"1", message_id="m", expect=Expect(subject, 0))
    await bus.publish(message)
    with pytest.raises(WrongLastSequence):
        await bus.publish(message)


async def test_refused_message_leaves_its_id_free(world: World, bus: Bus) -> None:
    await world.make_stream(bus)
    subject = world.subject("s.a")
    with pytest.raises(WrongLastSequence):
        await bus.publish(Message(subject, b"1", message_id="m", expect=Expect(subject, 7)))
    assert not (await bus.publish(Message(subject, b"1", message_id="m"))).duplicate


async def test_one_of_many_writers_with_one_fence_wins(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    family = world.subject("s.p.>")
    other = await world.connect()

    async def write(n: int) -> bool:
        message = Message(world.subject(f"s.p.{n}"), b"x", message_id=f"m{n}", expect=Expect(family, 0))
        try:
            await (bus, other)[n % 2].publish(message)
        except WrongLastSequence:
            return False
        return True

    assert sum(await asyncio.gather(*(write(n) for n in range(20)))) == 1
    assert (await bus.stream_state(stream)).messages == 1


async def test_message_with_a_time_to_live_expires(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus, message_ttl=True)
    subject = world.subject("s.a")
    await bus.publish(Message(subject, b"short", ttl_s=3))
    await bus.publish(Message(world.subject("s.b"), b"lasting"))

    async def gone() -> bool:
        return not (await bus.last(stream, [subject])).messages

    assert not await gone()
    await world.until(gone)
    assert (await bus.stream_state(stream)).messages == 1
    # The fence is reset, too.
    await bus.publish(Message(subject, b"again", expect=Expect(subject, 0)))


async def test_publish_on_a_closed_bus_is_reported(world: World, bus: Bus) -> None:
    await world.make_stream(bus)
    other = await world.connect()
    assert [each.connected for each in (bus, other)] == [True, True]
    await other.close()
    await other.close()
    assert [each.connected for each in (bus, other)] == [True, False]
    with pytest.raises(Disconnected):
        await other.publish(Message(world.subject("s.a"), b"x"))
