"""Virtual time: hours pass at once, one seed is one run, and a run that cannot go on says so."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from anchorwatch.bus.port import ConsumerSpec, Message
from anchorwatch.testing.bus import Deadlock, Livelock, SimServer, TimeLimitReached, run
from anchorwatch.topology.streams import StreamSpec

from tests.sim.contention import digest, play

ROOT = Path(__file__).parents[2]


def test_day_of_virtual_time_passes_at_once() -> None:
    async def main() -> float:
        await asyncio.sleep(24 * 3600)
        return asyncio.get_running_loop().time()

    before_s = time.monotonic()
    assert run(main()) == 24 * 3600
    assert time.monotonic() - before_s < 5


def test_timeouts_are_in_virtual_time() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        at_s = []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(90):
                await asyncio.Event().wait()
        at_s.append(loop.time())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 10)
        at_s.append(loop.time())
        return at_s

    assert run(main()) == [90, 100]


def test_simultaneous_waiters_run_in_an_order_chosen_by_the_seed() -> None:
    async def main() -> list[int]:
        order: list[int] = []

        async def note(number: int) -> None:
            await asyncio.sleep(1)
            order.append(number)

        await asyncio.gather(*(note(number) for number in range(6)))
        return order

    orders = [run(main(), seed) for seed in range(20)]
    assert orders == [run(main(), seed) for seed in range(20)]
    assert len({tuple(order) for order in orders}) > 10
    assert run(main(), 1, shuffle=False) == run(main(), 2, shuffle=False)


def test_task_set_has_one_order_in_every_run() -> None:
    async def main() -> list[str]:
        cancelled: list[str] = []

        async def wait(name: str) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(name)
                raise

        # A task group keeps its tasks in a set, and cancels them in that set's order.
        async def group_that_fails() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(20):
                    group.create_task(wait(f"t{number}"))
                await asyncio.sleep(1)
                raise ValueError

        with pytest.raises(ExceptionGroup):
            await group_that_fails()
        return cancelled

    first = run(main(), 7)
    litter = [object() for _ in range(10_000)]  # so that the next tasks lie elsewhere in memory
    assert run(main(), 7) == first
    assert litter


def test_same_seed_gives_the_same_trace_byte_for_byte() -> None:
    for seed in range(10):
        assert play(seed).trace == play(seed).trace
    assert len({"\n".join(play(seed).trace) for seed in range(10)}) == 10


@pytest.mark.parametrize("hash_seed", ["0", "4242"])
def test_seed_is_the_same_run_in_another_process(hash_seed: str) -> None:
    """Hashes of strings differ from process to process, and so does the order of a set."""
    there = subprocess.run(
        [sys.executable, "-c", "from tests.sim.contention import digest; print(digest(11))"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == digest(11)


def test_deadlocked_run_names_where_its_tasks_wait() -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        other = asyncio.create_task(waits_for_ever())
        await other

    with pytest.raises(Deadlock, match=r"waits_for_ever at .*test_virtual_time\.py:\d+") as caught:
        run(main())
    assert "main at" in str(caught.value)


def test_unanswered_fetch_ends_empty_and_is_not_a_deadlock() -> None:
    async def main() -> int:
        server = SimServer()
        bus = server.connect()
        await bus.ensure_stream(StreamSpec("S", ("s.>",)))
        consumer = await bus.consumer(ConsumerSpec("S", ("s.>",), "c"))
        return len(await consumer.fetch(1, timeout_s=3600))

    assert run(main()) == 0


def test_run_whose_time_has_stalled_is_ended() -> None:
    async def spins() -> None:
        while True:  # noqa: ASYNC110 - that is the defect
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match="spins at"):
        run(spins())


def test_run_beyond_its_time_is_ended() -> None:
    async def beats() -> None:
        while True:  # noqa: ASYNC110 - that is the defect
            await asyncio.sleep(30)

    with pytest.raises(TimeLimitReached, match="beats at"):
        run(beats(), time_limit_s=3600)


def test_remaining_tasks_are_cancelled_and_may_clean_up() -> None:
    cleaned: list[float] = []

    async def background() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(2)
            cleaned.append(asyncio.get_running_loop().time())

    async def main() -> str:
        task = asyncio.create_task(background())
        await asyncio.sleep(1)
        return "done" if not task.done() else "too early"

    assert run(main()) == "done"
    assert cleaned == [3]


def test_virtual_loop_uses_no_threads_and_no_sockets() -> None:
    async def main() -> None:
        assert await asyncio.to_thread(lambda: 42) == 42
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        with pytest.raises(NotImplementedError):
            await asyncio.get_running_loop().create_connection(asyncio.Protocol, "127.0.0.1", 1)

    run(main())


def test_main_coroutine_error_is_raised() -> None:
    async def main() -> None:
        await asyncio.sleep(1)
        raise LookupError("as it was")

    with pytest.raises(LookupError, match="as it was"):
        run(main())


async def test_advance_under_a_plain_loop_passes_every_due_timer() -> None:
    server = SimServer()
    bus = server.connect()
    await bus.ensure_stream(StreamSpec("S", ("s.>",)))
    consumer = await bus.consumer(ConsumerSpec("S", ("s.>",), "c", ack_wait_s=30))
    start_ms = server.now_ms()
    slept: list[int] = []

    async def sleep() -> None:
        for _ in range(3):
            await server.clock.sleep(600)
            slept.append(server.now_ms() - start_ms)

    sleeping = asyncio.create_task(sleep())
    fetching = asyncio.create_task(consumer.fetch(1, timeout_s=7200))
    await server.advance(3600)
    assert [round(each / 1000) for each in slept] == [600, 1200, 1800]
    assert sleeping.done()
    assert not fetching.done()
    await bus.publish(Message("s.a", b"x"))
    (first,) = await fetching
    again = asyncio.create_task(consumer.fetch(1, timeout_s=7200))
    await server.advance(29)
    assert not again.done()
    await server.advance(2)
    (second,) = await again
    assert (first.attempt, second.attempt) == (1, 2)
    assert 3631 <= (server.now_ms() - start_ms) / 1000 < 3635


def test_chance_is_by_seed_inside_a_run_and_as_ever_outside() -> None:
    async def main() -> tuple[str, str, bytes, float]:
        return secrets.token_hex(8), str(uuid.uuid4()), os.urandom(4), random.random()

    assert run(main(), 1) == run(main(), 1)
    assert len({*run(main(), 1), *run(main(), 2)}) == 8
    assert secrets.token_hex(8) != secrets.token_hex(8)
    assert uuid.uuid4() != uuid.uuid4()
    random.seed(5)
    before = random.random()
    random.seed(5)
    run(main(), 1)
    assert random.random() == before, "a run leaves the state of random as it was"


def test_virtual_loop_opens_no_socket() -> None:
    """The loop itself opens none, not even the pair with which other loops wake themselves."""

    async def main() -> None:
        await asyncio.sleep(1)

    original = socket.socket

    class Refused(original):  # type: ignore[misc,valid-type]  # a class chosen at run time
        def __init__(self, *_args: object, **_options: object) -> None:
            raise AssertionError("a socket was opened")

    socket.socket = Refused  # type: ignore[misc]
    try:
        run(main())
    finally:
        socket.socket = original  # type: ignore[misc]
