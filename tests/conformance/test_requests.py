"""Messages that are not stored: requests, announcements, queue groups."""

from __future__ import annotations

import asyncio

import pytest
from anchorwatch.bus.port import Bus, Handler
from anchorwatch.core.errors import Unavailable

from tests.conformance.worlds import World

ANSWERED_S = 30.0
NO_ANSWER_S = 0.2


async def test_request_is_answered(world: World, bus: Bus) -> None:
    async def answer(subject: str, payload: bytes) -> bytes:
        return subject.encode() + b" " + payload

    await (await world.connect()).subscribe(world.subject("rpc.*"), answer)
    assert (
        await bus.request(world.subject("rpc.a"), b"x", ANSWERED_S) == f"{world.subject('rpc.a')} x".encode()
    )
    assert await bus.request(world.subject("rpc.a"), b"", ANSWERED_S) == f"{world.subject('rpc.a')} ".encode()


async def test_empty_answer_is_an_answer(world: World, bus: Bus) -> None:
    async def answer(_subject: str, _payload: bytes) -> bytes:
        return b""

    await bus.subscribe(world.subject("rpc"), answer)
    assert await bus.request(world.subject("rpc"), b"x", ANSWERED_S) == b""


async def test_request_without_a_subscriber_fails_at_once(world: World, bus: Bus) -> None:
    asking = asyncio.create_task(bus.request(world.subject("unanswered"), b"x", 2 * ANSWERED_S))
    with pytest.raises(Unavailable):
        await asyncio.wait_for(asking, world.at_once_s)


async def test_request_without_an_answer_in_time_is_unavailable(world: World, bus: Bus) -> None:
    async def silent(_subject: str, _payload: bytes) -> None:
        return None

    await bus.subscribe(world.subject("rpc"), silent)
    with pytest.raises(Unavailable):
        await bus.request(world.subject("rpc"), b"x", NO_ANSWER_S)


async def test_failed_handler_sends_no_answer_and_continues(world: World, bus: Bus) -> None:
    async def fails_once(_subject: str, payload: bytes) -> bytes:
        if payload == b"bad":
            raise ValueError("bad")
        return b"good"

    await bus.subscribe(world.subject("rpc"), fails_once)
    with pytest.raises(Unavailable):
        await bus.request(world.subject("rpc"), b"bad", NO_ANSWER_S)
    assert await bus.request(world.subject("rpc"), b"", ANSWERED_S) == b"good"


async def test_slow_request_delays_no_other(world: World, bus: Bus) -> None:
    release = asyncio.Event()

    async def answer(_subject: str, payload: bytes) -> bytes:
        if payload == b"slow":
            await release.wait()
        return payload

    await bus.subscribe(world.subject("rpc"), answer)
    slow = asyncio.create_task(bus.request(world.subject("rpc"), b"slow", ANSWERED_S))
    assert await bus.request(world.subject("rpc"), b"quick", ANSWERED_S) == b"quick"
    assert not slow.done()
    release.set()
    assert await slow == b"slow"


async def test_announcements_reach_all_subscribers_in_order(world: World, bus: Bus) -> None:
    heard: list[list[bytes]] = [[], []]

    def listener(into: list[bytes]) -> Handler:
        async def hear(_subject: str, payload: bytes) -> None:
            into.append(payload)

        return hear

    for into in heard:
        await (await world.connect()).subscribe(world.subject("live.>"), listener(into))
    for n in range(20):
        await bus.announce(world.subject("live.a"), str(n).encode())
    await bus.announce(world.subject("other"), b"x")

    async def complete() -> bool:
        return all(len(each) >= 20 for each in heard)

    await world.until(complete)
    assert heard == [[str(n).encode() for n in range(20)]] * 2


async def test_one_member_of_a_queue_group_gets_each_message(world: World, bus: Bus) -> None:
    heard: list[bytes] = []

    async def hear(_subject: str, payload: bytes) -> bytes:
        heard.append(payload)
        return b"ok"

    for _ in range(3):
        await (await world.connect()).subscribe(world.subject("rpc"), hear, queue="workers")
    for n in range(10):
        assert await bus.request(world.subject("rpc"), str(n).encode(), ANSWERED_S) == b"ok"
    assert heard == [str(n).encode() for n in range(10)]


async def test_closed_subscription_receives_nothing(world: World, bus: Bus) -> None:
    async def answer(_subject: str, payload: bytes) -> bytes:
        return payload

    subscription = await bus.subscribe(world.subject("rpc"), answer)
    await bus.request(world.subject("rpc"), b"x", ANSWERED_S)
    await subscription.close()
    await subscription.close()
    with pytest.raises(Unavailable):
        await bus.request(world.subject("rpc"), b"x", NO_ANSWER_S)
