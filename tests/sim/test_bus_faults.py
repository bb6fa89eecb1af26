"""Each kind of fault has its effect, is counted, and is the only one that occurs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from anchorwatch.bus.port import (
    Ack,
    Consumer,
    ConsumerSpec,
    Disconnected,
    Expect,
    Message,
    Schedule,
    WrongLastSequence,
)
from anchorwatch.core.errors import Unavailable
from anchorwatch.testing.bus import FaultKind, Faults, SimBus, SimServer, run
from anchorwatch.testing.bus.engine import Engine
from anchorwatch.topology.streams import BucketSpec, Source, StreamSpec

from tests.sim.contention import BY_CHANCE, play

Scenario = Callable[[SimBus], Awaitable[None]]


def with_fault(kind: FaultKind, scenario: Scenario, *, seed: int = 1, struck: bool = True) -> SimServer:
    """Run on a stream ``J`` (schedules, batches), a bucket ``b`` and a view ``v``; then ``kind`` always occurs."""

    async def main() -> SimServer:
        faults = Faults(random.Random(seed), {kind: 1.0})
        faults.enabled = False
        server = SimServer(faults=faults, seed=seed)
        bus = server.connect(name="client")
        await bus.ensure_stream(
            StreamSpec("J", ("j.>",), atomic_batches=True, schedules=True, message_ttl=True)
        )
        await bus.ensure_bucket(BucketSpec("b"))
        await bus.ensure_bucket(BucketSpec("v", sources=(Source("J", "j.v.*", "$KV.v.{{wildcard(1)}}"),)))
        faults.enabled = True
        await scenario(bus)
        return server

    server = run(main(), seed)
    if struck:
        assert server.faults.counts.get(kind, 0) > 0
    assert set(server.faults.counts) <= {kind}
    return server


async def stored(server: Engine) -> int:
    return server.stream("J").state().messages


async def reader(bus: SimBus, **options: float) -> Consumer:
    return await bus.consumer(ConsumerSpec("J", ("j.>",), "readers", **options))  # type: ignore[arg-type]


def now_s() -> float:
    return asyncio.get_running_loop().time()


# Calls.


def test_lost_request_is_not_stored_and_times_out() -> None:
    async def scenario(bus: SimBus) -> None:
        with pytest.raises(Unavailable):
            await bus.publish(Message("j.a", b"x"), timeout_s=3)
        assert now_s() == pytest.approx(3)
        await asyncio.sleep(100)
        assert await stored(bus.server) == 0

    with_fault(FaultKind.LOST_REQUEST, scenario)


def test_lost_ack_hides_a_stored_write() -> None:
    async def scenario(bus: SimBus) -> None:
        with pytest.raises(Unavailable) as caught:
            await bus.publish(Message("j.a", b"x", message_id="m"), timeout_s=3)
        assert not isinstance(caught.value, Disconnected)
        assert now_s() == pytest.approx(3)
        assert await stored(bus.server) == 1
        bus.server.faults.enabled = False
        assert (await bus.publish(Message("j.a", b"x", message_id="m"))).duplicate

    with_fault(FaultKind.LOST_ACK, scenario)


def test_zombie_write_is_stored_late_if_its_fence_holds() -> None:
    async def scenario(bus: SimBus) -> None:
        for subject in ("j.a", "j.b"):
            with pytest.raises(Unavailable):
                await bus.publish(Message(subject, b"x", expect=Expect("j.>", 0)), timeout_s=3)
        assert await stored(bus.server) == 1  # the first was stored during the second call
        await asyncio.sleep(2)
        assert await stored(bus.server) == 1  # and its fence refused the second

    with_fault(FaultKind.ZOMBIE_WRITE, scenario)


def test_spurious_fence_refusal_is_marked() -> None:
    async def scenario(bus: SimBus) -> None:
        with pytest.raises(WrongLastSequence) as caught:
            await bus.publish(Message("j.a", b"x", expect=Expect("j.a", 0)))
        assert caught.value.spurious_possible
        await bus.publish(Message("j.a", b"x"))  # a write without a fence is not refused
        with pytest.raises(WrongLastSequence) as caught:
            await bus.publish(Message("j.a", b"x", expect=Expect("j.a", 0)))
        assert not caught.value.spurious_possible
        assert await stored(bus.server) == 1

    with_fault(FaultKind.SPURIOUS_FENCE, scenario)


def test_slow_call_is_delayed_or_times_out() -> None:
    async def scenario(bus: SimBus) -> None:
        await bus.publish(Message("j.a", b"x"), timeout_s=5)
        assert 0 < now_s() <= 1
        results = [
            await asyncio.gather(bus.publish(Message("j.a", b"x"), timeout_s=0.3), return_exceptions=True)
            for _ in range(20)
        ]
        assert {type(result) for (result,) in results} == {Ack, Unavailable}

    with_fault(FaultKind.SLOW_CALL, scenario)


def test_stale_read_has_its_completeness_sequence() -> None:
    async def scenario(bus: SimBus) -> None:
        for number in range(20):
            await bus.publish(Message(f"j.{number % 2}", str(number).encode()))
        page = await bus.last("J", ["j.>"])
        assert page.up_to < 20
        assert [each.sequence for each in page.messages] == [page.up_to - 1, page.up_to]
        span = await bus.range("J", "j.0", 1)
        assert span.up_to < 20
        assert [each.sequence for each in span.messages] == list(range(1, span.up_to + 1, 2))
        assert not span.more

    with_fault(FaultKind.STALE_READ, scenario)


def test_stale_key_is_the_previous_entry() -> None:
    async def scenario(bus: SimBus) -> None:
        bucket = await bus.bucket("b")
        await bucket.put("k", b"1")
        entry = await bucket.get("k")
        assert entry is not None
        assert entry.value == b"1"
        await bucket.put("k", b"2")
        entry = await bucket.get("k")
        assert entry is not None
        assert (entry.value, entry.revision) == (b"1", 1)

    with_fault(FaultKind.STALE_KEY, scenario)


# Deliveries.


def test_duplicate_delivery_arrives_despite_an_ack() -> None:
    async def scenario(bus: SimBus) -> None:
        await bus.publish(Message("j.a", b"x"))
        consumer = await reader(bus, ack_wait_s=60)
        (first,) = await consumer.fetch(1, 5)
        await first.ack()
        (second,) = await consumer.fetch(1, 5)
        assert (second.stored.sequence, second.attempt) == (1, 2)
        assert now_s() <= 1

    with_fault(FaultKind.DUPLICATE_DELIVERY, scenario)


def test_lost_delivery_ack_causes_a_redelivery() -> None:
    async def scenario(bus: SimBus) -> None:
        await bus.publish(Message("j.a", b"x"))
        consumer = await reader(bus, ack_wait_s=7)
        (first,) = await consumer.fetch(1, 5)
        await first.ack()
        assert await consumer.fetch(1, 6.9) == []
        (second,) = await consumer.fetch(1, 5)
        assert second.attempt == 2
        assert now_s() == pytest.approx(7)

    with_fault(FaultKind.LOST_DELIVERY_ACK, scenario)


def test_delayed_delivery_keeps_its_subjects_order() -> None:
    async def scenario(bus: SimBus) -> None:
        consumer = await reader(bus)
        await bus.publish(Message("j.slow", b"1"))
        waiting = asyncio.create_task(consumer.fetch(1, 30))
        await asyncio.sleep(0.0001)
        bus.server.faults.enabled = False
        await bus.publish(Message("j.slow", b"2"))
        await bus.publish(Message("j.fast", b"3"))
        order = [each.stored.payload for each in await waiting]
        while len(order) < 3:
            order += [each.stored.payload for each in await consumer.fetch(10, 30)]
        assert order == [b"3", b"1", b"2"]

    with_fault(FaultKind.DELAYED_DELIVERY, scenario)


def test_reordered_deliveries_keep_the_order_of_each_subject() -> None:
    async def scenario(bus: SimBus) -> None:
        for number in range(30):
            await bus.publish(Message(f"j.{number % 3}", b"x"))
        consumer = await reader(bus)
        got = [each.stored for each in await consumer.fetch(30, 5)]
        assert [each.sequence for each in got] != list(range(1, 31))
        assert sorted(each.sequence for each in got) == list(range(1, 31))
        for subject in ("j.0", "j.1", "j.2"):
            own = [each.sequence for each in got if each.subject == subject]
            assert own == sorted(own)

    with_fault(FaultKind.REORDERED_DELIVERY, scenario)


def test_slow_fetch_lets_the_ack_wait_run() -> None:
    async def scenario(bus: SimBus) -> None:
        await bus.publish(Message("j.a", b"x"))
        consumer = await reader(bus, ack_wait_s=0.01)
        (first,) = await consumer.fetch(1, 5)
        arrived_s = now_s()
        assert arrived_s > 0.01
        assert first.attempt == 1
        bus.server.faults.enabled = False
        (second,) = await consumer.fetch(1, 5)
        assert second.attempt == 2
        assert now_s() == arrived_s

    with_fault(FaultKind.SLOW_FETCH, scenario)


def test_message_of_an_orphaned_pull_is_redelivered() -> None:
    async def main() -> None:
        server = SimServer(faults=Faults(random.Random(1), {FaultKind.ORPHANED_PULL: 1.0}))
        bus, other = server.connect(name="gone"), server.connect(name="other")
        await bus.ensure_stream(StreamSpec("J", ("j.>",)))
        consumer = await reader(bus, ack_wait_s=9)
        waiting = asyncio.create_task(consumer.fetch(1, 30))
        await asyncio.sleep(1)
        bus.cut()
        assert await waiting == []
        await other.publish(Message("j.a", b"x"))
        (delivery,) = await (await reader(other, ack_wait_s=9)).fetch(1, 30)
        assert delivery.attempt == 2
        assert server.faults.counts == {FaultKind.CUT: 1, FaultKind.ORPHANED_PULL: 1}

    run(main())


def test_orphaned_pull_ends_with_its_own_timeout() -> None:
    async def main() -> None:
        server = SimServer(faults=Faults(random.Random(1), {FaultKind.ORPHANED_PULL: 1.0}))
        bus, other = server.connect(name="gone"), server.connect(name="other")
        await bus.ensure_stream(StreamSpec("J", ("j.>",)))
        waiting = asyncio.create_task((await reader(bus)).fetch(1, 30))
        await asyncio.sleep(1)
        bus.cut()
        await waiting
        await asyncio.sleep(31)
        await other.publish(Message("j.a", b"x"))
        (delivery,) = await (await reader(other)).fetch(1, 30)
        assert delivery.attempt == 1

    run(main())


# Core messages, sources and schedules.


def test_lost_core_request_is_a_timeout() -> None:
    async def scenario(bus: SimBus) -> None:
        async def echo(_subject: str, payload: bytes) -> bytes:
            return payload

        await bus.subscribe("aw.rpc.echo", echo)
        with pytest.raises(Unavailable):
            await bus.request("aw.rpc.echo", b"x", timeout_s=2)
        assert now_s() == pytest.approx(2)
        bus.server.faults.enabled = False
        assert await bus.request("aw.rpc.echo", b"x", timeout_s=2) == b"x"

    with_fault(FaultKind.LOST_ANNOUNCEMENT, scenario)


def test_slow_source_catches_up_in_order() -> None:
    async def scenario(bus: SimBus) -> None:
        view = await bus.bucket("v")
        for number in range(5):
            await bus.publish(Message("j.v.k", str(number).encode()))
        assert await view.get("k") is None
        await asyncio.sleep(2)
        entry = await view.get("k")
        assert entry is not None
        assert (entry.value, entry.revision) == (b"4", 5)

    with_fault(FaultKind.SLOW_SOURCE, scenario)


def test_slow_schedule_fires_late_and_once() -> None:
    async def scenario(bus: SimBus) -> None:
        at_ms = await bus.server_time_ms() + 10_000
        await bus.publish(Message("j.s", b"x", schedule=Schedule(at_ms, "j.t")))
        consumer = await bus.consumer(ConsumerSpec("J", ("j.t",), "ticks"))
        (tick,) = await consumer.fetch(1, 60)
        assert 10 < now_s() <= 11
        assert tick.stored.payload == b"x"
        assert await consumer.fetch(1, 4) == []

    with_fault(FaultKind.SLOW_SCHEDULE, scenario)


# Faults on a test's order.


def world() -> tuple[SimServer, SimBus]:
    server = SimServer()
    return server, server.connect(name="client")


def test_cut_fails_pending_calls_and_delays_new_ones() -> None:
    async def main() -> None:
        server, bus = world()
        await bus.ensure_stream(StreamSpec("J", ("j.>",)))
        consumer = await reader(bus, ack_wait_s=5)
        fetching = asyncio.create_task(consumer.fetch(1, 60))
        await asyncio.sleep(1)
        bus.cut()
        assert not bus.connected
        assert await fetching == []
        assert now_s() < 2
        asyncio.get_running_loop().call_later(3, bus.reconnect)
        assert (await bus.publish(Message("j.a", b"x"), timeout_s=5)).sequence == 1
        assert 3 < now_s() < 5
        bus.cut()
        with pytest.raises(Disconnected):
            await bus.publish(Message("j.a", b"x"), timeout_s=2)
        bus.reconnect()
        (delivery,) = await consumer.fetch(1, 5)
        assert delivery.attempt == 1
        assert server.faults.counts == {FaultKind.CUT: 2}

    run(main())


def test_calls_of_a_killed_client_fail() -> None:
    async def main() -> None:
        server, bus = world()
        await bus.ensure_stream(StreamSpec("J", ("j.>",)))
        await bus.publish(Message("j.a", b"x"))
        consumer = await reader(bus, ack_wait_s=5)
        (delivery,) = await consumer.fetch(1, 5)
        fetching = asyncio.create_task(consumer.fetch(1, 60))
        await asyncio.sleep(1)
        bus.kill()
        with pytest.raises(Disconnected):
            await fetching
        await delivery.ack()  # no effect
        with pytest.raises(Disconnected):
            await bus.publish(Message("j.a", b"y"))
        bus.reconnect()
        with pytest.raises(Disconnected):
            await bus.last("J", ["j.>"])
        assert await stored(server) == 1
        again = server.connect(name="client")
        (second,) = await (await reader(again, ack_wait_s=5)).fetch(1, 30)
        assert second.attempt == 2
        assert now_s() == pytest.approx(5)

    run(main())


def test_retry_loop_of_a_killed_client_lets_time_pass() -> None:
    async def main() -> None:
        _, bus = world()
        bus.kill()

        attempts = 0

        async def retry() -> None:
            nonlocal attempts
            while True:
                attempts += 1
                try:
                    await bus.publish(Message("j.a", b"x"))
                except Disconnected:
                    continue

        task = asyncio.create_task(retry())
        await asyncio.sleep(60)
        assert not task.done()
        assert attempts > 1
        assert now_s() == pytest.approx(60)
        task.cancel()

    run(main())


def test_frozen_client_returns_as_a_zombie() -> None:
    async def main() -> None:
        server, bus = world()
        await bus.ensure_stream(StreamSpec("J", ("j.>",)))
        consumer = await reader(bus, ack_wait_s=5)
        other = server.connect(name="other")
        fetching = asyncio.create_task(consumer.fetch(1, 60))
        await asyncio.sleep(1)
        bus.freeze()
        await other.publish(Message("j.a", b"x"))
        await asyncio.sleep(20)
        assert not fetching.done()
        (second,) = await (await reader(other, ack_wait_s=5)).fetch(1, 5)
        assert second.attempt == 2
        bus.thaw()
        (first,) = await fetching
        assert first.attempt == 1
        await first.ack()  # an ack is not a fence: the stale one settles the message
        assert await (await reader(other, ack_wait_s=5)).fetch(1, 30) == []

    run(main())


def test_acknowledged_messages_survive_a_restart() -> None:
    async def main() -> None:
        server, bus = world()
        await bus.ensure_stream(StreamSpec("J", ("j.>",), schedules=True))
        at_ms = await bus.server_time_ms() + 2000
        await bus.publish(Message("j.s", b"tick", schedule=Schedule(at_ms, "j.t")))
        await bus.publish(Message("j.a", b"x", message_id="m"))
        consumer = await reader(bus, ack_wait_s=30)
        fetching = asyncio.create_task(consumer.fetch(10, 60))
        await asyncio.sleep(1)
        assert len(await fetching) == 2  # the schedule itself is a message too
        server.stop()
        with pytest.raises(Disconnected):
            await server.connect().publish(Message("j.a", b"y"), timeout_s=1)
        await asyncio.sleep(10)
        server.start()
        assert (await bus.publish(Message("j.a", b"x", message_id="m"))).duplicate
        (tick,) = await consumer.fetch(1, 5)  # overdue, so it fired at once
        assert (tick.stored.subject, tick.stored.payload) == ("j.t", b"tick")
        assert now_s() < 14
        assert server.faults.counts == {FaultKind.RESTART: 1}

    run(main())


def test_clock_step_does_not_change_waits() -> None:
    async def main() -> None:
        server, bus = world()
        await bus.ensure_stream(StreamSpec("J", ("j.>",)))
        before_ms = server.now_ms()
        server.step_clock(-3600)
        assert server.now_ms() == before_ms - 3_600_000
        consumer = await reader(bus)
        assert await consumer.fetch(1, 10) == []
        assert now_s() == pytest.approx(10)
        assert server.faults.counts == {FaultKind.CLOCK_STEP: 1}

    run(main())


# All together.


def test_zero_rates_cause_no_fault() -> None:
    report = play(3, rate=0.0)
    assert not set(report.counts) & set(BY_CHANCE)


def test_fault_kinds_all_occur_in_some_run() -> None:
    counts: dict[FaultKind, int] = {}
    for seed in range(60):
        for kind, count in play(seed, rate=0.08).counts.items():
            counts[kind] = counts.get(kind, 0) + count
    # The scenario has no requests, schedules or reads of keys, and no steps of the clock.
    missing = {
        FaultKind.LOST_ANNOUNCEMENT,
        FaultKind.SLOW_SCHEDULE,
        FaultKind.STALE_KEY,
        FaultKind.CLOCK_STEP,
    }
    assert set(counts) == set(FaultKind) - missing


@pytest.mark.parametrize("seed", range(40))
def test_fences_have_one_winner_under_all_faults(seed: int) -> None:
    report = play(seed, rate=0.08)
    assert {expected: who for expected, who in report.wins.items() if len(who) > 1} == {}
    assert {sequence for sequence, _, _ in report.stored} == set(report.handled)
    assert report.view_is_right
    assert len({payload for _, _, payload in report.stored}) == len(report.stored), "a write landed twice"
    # Each write follows the last one that its writer had read: no fork, whatever answers were lost.
    assert report.chain == list(range(len(report.stored)))
