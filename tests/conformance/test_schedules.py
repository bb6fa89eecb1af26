"""Schedules: messages that the server itself delivers later.

The base of its fences, as measured on nats-server 2.15.1: a schedule's subject has at most one message, the pending
schedule; each write replaces it. While it is pending, the subject's last sequence is that of its message. When it
fires, the server stores the payload on the target at a new sequence, and removes the schedule in the same step: the
subject's last sequence is then 0. A purge of the subject cancels the schedule and leaves 0 as well. So a compare-and-set
write of a schedule is fenced on its own subject, with the pending schedule's sequence, or with 0 for none.

A fired message has the publisher's headers, but not the message id. An ``at`` in the past fires at once.
"""

from __future__ import annotations

import pytest
from anchorwatch.bus.port import (
    Ack,
    Bus,
    Consumer,
    ConsumerSpec,
    Expect,
    Message,
    Schedule,
    WrongLastSequence,
)
from anchorwatch.core.errors import BadInput

from tests.conformance.worlds import World

SOON_S = 30.0


class Ticks:
    """A stream with one schedule, and a consumer of its target."""

    def __init__(self, world: World, bus: Bus, stream: str, fired: Consumer) -> None:
        self.bus = bus
        self.world = world
        self.stream = stream
        self.fired = fired
        self.schedule = world.subject("s.schedule.x")
        self.target = world.subject("s.fired.x")

    async def set(
        self, payload: bytes, in_s: float, expect: int | None = None, message_id: str | None = None
    ) -> Ack:
        return await self.bus.publish(
            Message(
                self.schedule,
                payload,
                message_id=message_id,
                expect=None if expect is None else Expect(self.schedule, expect),
                headers={"Aw-Why": "test"},
                schedule=Schedule(await self.bus.server_time_ms() + int(in_s * 1000), self.target),
            )
        )

    async def next(self, timeout_s: float = SOON_S) -> list[bytes]:
        deliveries = await self.fired.fetch(10, timeout_s)
        for delivery in deliveries:
            await delivery.ack()
        return [delivery.stored.payload for delivery in deliveries]

    async def standing(self) -> list[int]:
        return [each.sequence for each in (await self.bus.last(self.stream, [self.schedule])).messages]


async def make(world: World, bus: Bus) -> Ticks:
    stream = await world.make_stream(bus, schedules=True, message_ttl=True)
    fired = await bus.consumer(ConsumerSpec(stream, (world.subject("s.fired.>"),), "fired"))
    return Ticks(world, bus, stream, fired)


async def test_schedule_fires_once_at_its_time(world: World, bus: Bus) -> None:
    ticks = await make(world, bus)
    start_ms = await bus.server_time_ms()
    await ticks.set(b"tick", in_s=0.6, message_id="m")
    (delivery,) = await ticks.fired.fetch(10, SOON_S)
    await delivery.ack()
    fired = delivery.stored
    assert (fired.subject, fired.payload, fired.headers["Aw-Why"]) == (ticks.target, b"tick", "test")
    assert fired.message_id is None
    assert fired.time_ms - start_ms >= 550
    assert await ticks.next(timeout_s=0.5) == []


async def test_schedule_in_the_past_fires_at_once(world: World, bus: Bus) -> None:
    ticks = await make(world, bus)
    await ticks.set(b"overdue", in_s=-60)
    assert await ticks.next() == [b"overdue"]


async def test_schedule_replaces_the_previous_one(world: World, bus: Bus) -> None:
    ticks = await make(world, bus)
    await ticks.set(b"first", in_s=2.0)
    await ticks.set(b"second", in_s=0.3)
    assert await ticks.next() == [b"second"]
    assert await ticks.next(timeout_s=2.5) == []


async def test_pending_schedule_is_its_subjects_last_sequence(world: World, bus: Bus) -> None:
    ticks = await make(world, bus)
    first = await ticks.set(b"first", in_s=60, expect=0)
    assert await ticks.standing() == [first.sequence]
    for stale in (0, first.sequence + 1):
        with pytest.raises(WrongLastSequence):
            await ticks.set(b"stale", in_s=60, expect=stale)
    second = await ticks.set(b"second", in_s=60, expect=first.sequence)
    assert await ticks.standing() == [second.sequence]
    await ticks.set(b"third", in_s=0.3, expect=second.sequence)
    assert await ticks.next() == [b"third"]


async def test_fired_schedule_leaves_a_fence_of_zero(world: World, bus: Bus) -> None:
    ticks = await make(world, bus)
    first = await ticks.set(b"first", in_s=0.3, expect=0)
    assert await ticks.next() == [b"first"]
    assert await ticks.standing() == []
    with pytest.raises(WrongLastSequence):
        await ticks.set(b"stale", in_s=0.3, expect=first.sequence)
    await ticks.set(b"next", in_s=0.3, expect=0)
    assert await ticks.next() == [b"next"]


async def test_purge_cancels_a_schedule(world: World, bus: Bus) -> None:
    ticks = await make(world, bus)
    await ticks.set(b"never", in_s=2.0)
    assert await bus.purge(ticks.stream, ticks.schedule) == 1
    assert await ticks.next(timeout_s=2.5) == []
    await ticks.set(b"another", in_s=0.3, expect=0)
    assert await ticks.next() == [b"another"]


async def test_schedules_of_different_subjects_are_independent(world: World, bus: Bus) -> None:
    ticks = await make(world, bus)
    now_ms = await bus.server_time_ms()
    for n, name in enumerate("abc"):
        await bus.publish(
            Message(
                world.subject(f"s.schedule.{name}"),
                name.encode(),
                schedule=Schedule(now_ms + 2600 - 800 * n, world.subject(f"s.fired.{name}")),
            )
        )
    seen: list[bytes] = []
    while len(seen) < 3:
        batch = await ticks.next()
        assert batch
        seen += batch
    assert seen == [b"c", b"b", b"a"]


async def test_repeated_message_id_keeps_the_schedule(world: World, bus: Bus) -> None:
    ticks = await make(world, bus)
    await ticks.set(b"first", in_s=0.5, message_id="m")
    assert (await ticks.set(b"again", in_s=0.5, message_id="m")).duplicate
    assert await ticks.next() == [b"first"]


async def test_schedule_targets_another_subject_of_its_stream(world: World, bus: Bus) -> None:
    ticks = await make(world, bus)
    for target in (world.subject("elsewhere.x"), ticks.schedule):
        with pytest.raises(BadInput):
            await bus.publish(Message(ticks.schedule, b"x", schedule=Schedule(world.now_ms() + 1000, target)))


async def test_stream_without_schedules_refuses_one(world: World, bus: Bus) -> None:
    await world.make_stream(bus)
    message = Message(
        world.subject("s.a"), b"x", schedule=Schedule(world.now_ms() + 1000, world.subject("s.b"))
    )
    with pytest.raises(BadInput):
        await bus.publish(message)
