"""Storing single messages: sequences, fences, message ids, limits."""

from __future__ import annotations

import pytest
from anchorwatch.bus.port import Bus, Expect, Message, StreamMissing, WrongLastSequence
from anchorwatch.core.errors import TooLarge

from tests.conformance.worlds import World


async def test_sequences_are_the_streams_and_grow_by_one(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    acks = [await bus.publish(Message(world.subject(f"s.{n}"), b"x")) for n in range(3)]
    assert [(ack.stream, ack.sequence, ack.duplicate) for ack in acks] == [
        (stream, 1, False),
        (stream, 2, False),
        (stream, 3, False),
    ]


async def test_what_was_stored_is_read_back_as_it_was(world: World, bus: Bus) -> None:
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


async def test_a_fence_of_zero_means_that_nothing_was_ever_stored_there(world: World, bus: Bus) -> None:
    await world.make_stream(bus)
    subject = world.subject("s.a")
    await bus.publish(Message(world.subject("s.other"), b"x"))
    ack = await bus.publish(Message(subject, b"first", expect=Expect(subject, 0)))
    assert ack.sequence == 2
    with pytest.raises(WrongLastSequence):
        await bus.publish(Message(subject, b"second", expect=Expect(subject, 0)))


async def test_a_fence_on_the_subject_itself_holds_or_refuses(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    subject = world.subject("s.a")
    first = await bus.publish(Message(subject, b"1", expect=Expect(subject, 0)))
    second = await bus.publish(Message(subject, b"2", expect=Expect(subject, first.sequence)))
    for stale in (0, first.sequence, second.sequence + 1):
        with pytest.raises(WrongLastSequence):
            await bus.publish(Message(subject, b"3", expect=Expect(subject, stale)))
    assert (await bus.stream_state(stream)).messages == 2


async def test_a_fence_on_a_family_sees_every_subject_of_it_and_no_other(world: World, bus: Bus) -> None:
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


async def test_the_fenced_subject_need_not_be_the_published_one(world: World, bus: Bus) -> None:
    await world.make_stream(bus)
    guard, target = world.subject("s.guard"), world.subject("s.target")
    guarded = await bus.publish(Message(guard, b"g"))
    await bus.publish(Message(target, b"1", expect=Expect(guard, guarded.sequence)))
    await bus.publish(Message(target, b"2", expect=Expect(guard, guarded.sequence)))
    await bus.publish(Message(guard, b"g2"))
    with pytest.raises(WrongLastSequence):
        await bus.publish(Message(target, b"3", expect=Expect(guard, guarded.sequence)))


async def test_a_subject_that_no_stream_takes_is_said_so(world: World, bus: Bus) -> None:
    with pytest.raises(StreamMissing, match=world.subject("nowhere")):
        await bus.publish(Message(world.subject("nowhere"), b"x"))


async def test_a_message_above_the_streams_size_is_refused(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus, message_bytes_max=1000)
    with pytest.raises(TooLarge):
        await bus.publish(Message(world.subject("s.a"), b"x" * 1001))
    await bus.publish(Message(world.subject("s.a"), b"x" * 900))
    assert (await bus.stream_state(stream)).messages == 1
