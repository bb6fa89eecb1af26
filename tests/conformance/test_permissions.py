"""A denied operation fails at once and names its subject."""

from __future__ import annotations

import asyncio

import pytest
from anchorwatch.bus.port import Bus, ConsumerSpec, Message
from anchorwatch.core.errors import Denied

from tests.conformance.worlds import RESTRICTED, World

FOR_LONG_S = 60.0


async def make(world: World, bus: Bus) -> str:
    subjects = (world.subject("allowed.>"), world.subject("closed.>"))
    return await world.make_stream(bus, subjects=subjects, atomic_batches=True)


async def test_permitted_operations_work(world: World, bus: Bus) -> None:
    await make(world, bus)
    restricted = await world.connect(RESTRICTED)
    assert (await restricted.publish(Message(world.subject("allowed.a"), b"x"))).sequence == 1


async def test_denied_publish_names_the_subject(world: World, bus: Bus) -> None:
    stream = await make(world, bus)
    restricted = await world.connect(RESTRICTED)
    with pytest.raises(Denied, match=world.subject("closed.a")):
        await asyncio.wait_for(
            restricted.publish(Message(world.subject("closed.a"), b"x"), FOR_LONG_S), world.at_once_s
        )
    # The connection still works.
    await restricted.publish(Message(world.subject("allowed.a"), b"x"))
    assert (await bus.stream_state(stream)).messages == 1


async def test_batch_with_a_denied_subject_stores_nothing(world: World, bus: Bus) -> None:
    stream = await make(world, bus)
    restricted = await world.connect(RESTRICTED)
    for names in (("closed.a", "allowed.a"), ("allowed.a", "closed.a")):
        batch = [Message(world.subject(name), b"x") for name in names]
        with pytest.raises(Denied, match=world.subject("closed.a")):
            await asyncio.wait_for(restricted.publish_batch(batch, FOR_LONG_S), world.at_once_s)
    assert (await bus.stream_state(stream)).messages == 0


async def test_read_and_consume_are_denied(world: World, bus: Bus) -> None:
    stream = await make(world, bus)
    restricted = await world.connect(RESTRICTED)
    everything = world.subject("allowed.>")
    for attempt in (
        restricted.last(stream, [everything], FOR_LONG_S),
        restricted.range(stream, everything, 1, timeout_s=FOR_LONG_S),
        restricted.stream_state(stream),
        restricted.purge(stream, everything),
        restricted.consumer(ConsumerSpec(stream, (everything,), "d")),
        restricted.request(world.subject("rpc"), b"", FOR_LONG_S),
    ):
        with pytest.raises(Denied):
            await asyncio.wait_for(attempt, world.at_once_s)


async def test_subscribe_is_denied(world: World, bus: Bus) -> None:
    restricted = await world.connect(RESTRICTED)

    async def hear(_subject: str, _payload: bytes) -> None:
        raise AssertionError("heard what is not allowed")

    with pytest.raises(Denied, match=world.subject("allowed")):
        await asyncio.wait_for(restricted.subscribe(world.subject("allowed.>"), hear), world.at_once_s)
    await bus.announce(world.subject("allowed.a"), b"x")
    await world.advance(0.1)
