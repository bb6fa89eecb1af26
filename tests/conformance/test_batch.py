"""Atomic batches: all or nothing, in order."""

from __future__ import annotations

import pytest
from anchorwatch.bus.port import BatchRefused, Bus, Expect, Message, StreamMissing, WrongLastSequence
from anchorwatch.core.errors import BadInput, TooLarge

from tests.conformance.worlds import World


async def make(world: World, bus: Bus, **options: object) -> str:
    return await world.make_stream(bus, "S", atomic_batches=True, **options)


async def test_batch_has_consecutive_sequences_in_order(world: World, bus: Bus) -> None:
    stream = await make(world, bus)
    await bus.publish(Message(world.subject("s.x"), b"before"))
    messages = [Message(world.subject(f"s.{name}"), name.encode(), headers={"K": name}) for name in "abca"]
    ack = await bus.publish_batch(messages)
    assert (ack.stream, ack.sequence, ack.duplicate) == (stream, 5, False)
    page = await bus.range(stream, world.subject("s.>"), 2)
    assert [(each.sequence, each.payload, each.headers["K"]) for each in page.messages] == [
        (2, b"a", "a"),
        (3, b"b", "b"),
        (4, b"c", "c"),
        (5, b"a", "a"),
    ]


async def test_batch_of_one_message_is_stored(world: World, bus: Bus) -> None:
    await make(world, bus)
    assert (await bus.publish_batch([Message(world.subject("s.a"), b"x")])).sequence == 1


@pytest.mark.parametrize("fenced", [0, 1, 2])
async def test_failed_fence_refuses_the_whole_batch(world: World, bus: Bus, fenced: int) -> None:
    stream = await make(world, bus)
    await bus.publish(Message(world.subject("s.p1.x"), b"moved"))
    messages = [
        Message(
            world.subject(f"s.p{n}.a"),
            b"x",
            message_id=f"m{n}",
            expect=Expect(world.subject("s.p1.>"), 0) if n == fenced else None,
        )
        for n in (0, 2, 3)
    ]
    messages[fenced] = Message(
        messages[fenced].subject, b"x", message_id=f"f{fenced}", expect=Expect(world.subject("s.p1.>"), 0)
    )
    with pytest.raises(WrongLastSequence):
        await bus.publish_batch(messages)
    assert (await bus.stream_state(stream)).last_sequence == 1
    # The message ids stay free.
    for message in messages:
        assert not (
            await bus.publish(Message(message.subject, b"x", message_id=message.message_id))
        ).duplicate


async def test_each_family_of_a_batch_has_its_own_fence(world: World, bus: Bus) -> None:
    await make(world, bus)
    p, q = world.subject("s.p.>"), world.subject("s.q.>")
    first = await bus.publish_batch(
        [
            Message(world.subject("s.p.a"), b"1", expect=Expect(p, 0)),
            Message(world.subject("s.q.a"), b"2", expect=Expect(q, 0)),
        ]
    )
    assert first.sequence == 2
    ack = await bus.publish_batch(
        [
            Message(world.subject("s.p.a"), b"1", expect=Expect(p, 1)),
            Message(world.subject("s.q.a"), b"2", expect=Expect(q, 2)),
        ]
    )
    assert ack.sequence == 4


async def test_first_fence_of_a_family_covers_its_other_messages(world: World, bus: Bus) -> None:
    await make(world, bus)
    family = world.subject("s.p.>")
    await bus.publish(Message(world.subject("s.p.a"), b"0"))
    ack = await bus.publish_batch(
        [
            Message(world.subject("s.p.a"), b"1", expect=Expect(family, 1)),
            Message(world.subject("s.p.b"), b"2"),
            Message(world.subject("s.p.a"), b"3"),
        ]
    )
    assert ack.sequence == 4
    await bus.publish(Message(world.subject("s.p.a"), b"4", expect=Expect(family, 4)))


async def test_known_message_id_refuses_the_whole_batch(world: World, bus: Bus) -> None:
    stream = await make(world, bus)
    await bus.publish(Message(world.subject("s.a"), b"x", message_id="known"))
    with pytest.raises(BatchRefused):
        await bus.publish_batch(
            [
                Message(world.subject("s.a"), b"1", message_id="new"),
                Message(world.subject("s.b"), b"2", message_id="known"),
            ]
        )
    assert (await bus.stream_state(stream)).messages == 1
    assert not (await bus.publish(Message(world.subject("s.a"), b"1", message_id="new"))).duplicate


async def test_message_ids_of_a_batch_are_known_afterwards(world: World, bus: Bus) -> None:
    await make(world, bus)
    await bus.publish_batch(
        [Message(world.subject(f"s.{n}"), b"x", message_id=f"m{n}") for n in (1, 2)],
    )
    again = await bus.publish(Message(world.subject("s.1"), b"x", message_id="m1"))
    assert (again.duplicate, again.sequence) == (True, 1)


async def test_too_large_message_refuses_the_whole_batch(world: World, bus: Bus) -> None:
    stream = await make(world, bus, message_bytes_max=1000)
    with pytest.raises(TooLarge):
        await bus.publish_batch(
            [
                Message(world.subject("s.a"), b"x"),
                Message(world.subject("s.b"), b"x" * 1001),
                Message(world.subject("s.c"), b"x"),
            ]
        )
    assert (await bus.stream_state(stream)).messages == 0


async def test_stream_without_batches_refuses_a_batch(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    with pytest.raises(BatchRefused):
        await bus.publish_batch([Message(world.subject("s.a"), b"x"), Message(world.subject("s.b"), b"x")])
    assert (await bus.stream_state(stream)).messages == 0


async def test_batch_without_a_stream_is_reported(world: World, bus: Bus) -> None:
    with pytest.raises(StreamMissing):
        await bus.publish_batch([Message(world.subject("no.a"), b"x"), Message(world.subject("no.b"), b"x")])


@pytest.mark.parametrize("count", [0, 1001])
async def test_batch_has_one_to_a_thousand_messages(world: World, bus: Bus, count: int) -> None:
    await make(world, bus)
    with pytest.raises(BadInput):
        await bus.publish_batch([Message(world.subject("s.a"), b"")] * count)
