"""The intake of a service until it stops, in virtual time on the simulated bus."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from anchorwatch.bus.port import ConsumerSpec, Message
from anchorwatch.service.intake import FETCH_S, Intake
from anchorwatch.testing.bus import SimServer, run
from anchorwatch.topology.streams import StreamSpec

SPEC = ConsumerSpec("J", ("j.>",), "readers", ack_wait_s=2.0)


class Scene:
    """A stream, and a service that reads it."""

    def __init__(self, seed: int = 0, latency_s: tuple[float, float] = (0.0, 0.0)) -> None:
        self.server = SimServer(seed=seed, latency_s=latency_s)
        self.server.ensure_stream(StreamSpec("J", ("j.>",)))
        self.outside = self.server.connect(name="outside")
        self.stopping = asyncio.Event()
        self.intake = Intake(self.server.connect(name="service"), SPEC, self.stopping)

    async def publish(self, count: int) -> None:
        for number in range(count):
            await self.outside.publish(Message(f"j.{number}", b""))

    async def rest(self) -> list[int]:
        """What another process of the service is given, once this one is closed."""
        other, found = Intake(self.server.connect(name="other"), SPEC, asyncio.Event()), list[int]()
        while deliveries := await other.next(100):
            found += [each.stored.sequence for each in deliveries]
            for each in deliveries:
                await each.ack()
        await other.close()
        return sorted(found)


def simulate(main: Coroutine[Any, Any, None], seed: int = 0) -> None:
    run(main, seed)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_fetch_returns_messages_at_once_or_none_after_a_limit() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.publish(3)
        for expected in ([1, 2], [3]):
            begun = now()
            deliveries = await scene.intake.next(2)
            assert [each.stored.sequence for each in deliveries] == expected
            assert now() == begun
            for each in deliveries:
                await each.ack()
        assert await scene.intake.next(2) == []
        assert now() == begun + FETCH_S
        await scene.intake.close()

    simulate(main())


def test_stop_ends_the_wait_and_further_fetches() -> None:
    async def main() -> None:
        scene = Scene()
        waiting = asyncio.create_task(scene.intake.next(1))
        await asyncio.sleep(1)
        stopped = now()
        scene.stopping.set()
        assert await waiting == []
        assert now() == stopped
        await scene.publish(1)
        assert await scene.intake.next(1) == []
        await scene.intake.close()
        assert await scene.rest() == [1]

    simulate(main())


@pytest.mark.parametrize("seed", range(40))
def test_message_during_a_stop_is_returned_or_redelivered(seed: int) -> None:
    async def main() -> None:
        scene = Scene(seed, latency_s=(0.0, 0.004))
        taken: list[int] = []

        async def take() -> None:
            while not scene.stopping.is_set():
                for each in await scene.intake.next(4):
                    taken.append(each.stored.sequence)
                    await each.ack()
            await scene.intake.close()

        working = asyncio.create_task(take())
        publishing = asyncio.create_task(scene.publish(8))
        await asyncio.sleep(0.001 * seed)
        scene.stopping.set()
        await asyncio.gather(working, publishing)
        assert {*taken, *await scene.rest()} == set(range(1, 9))

    simulate(main(), seed)


def test_cancelled_fetch_raises_and_is_not_a_stop() -> None:
    async def main() -> None:
        scene = Scene()
        waiting = asyncio.create_task(scene.intake.next(1))
        await asyncio.sleep(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        # The cancelled wait is forgotten: a stop ends only the next wait.
        again = asyncio.create_task(scene.intake.next(1))
        await scene.publish(1)
        assert [each.stored.sequence for each in await again] == [1]
        scene.stopping.set()
        await asyncio.sleep(1)
        await scene.intake.close()

    simulate(main())


def test_deleted_consumer_is_created_again() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.publish(1)
        assert len(await scene.intake.next(1)) == 1
        await scene.outside.delete_consumer("J", "readers")
        assert await scene.intake.next(1) == []
        assert len(await scene.intake.next(1)) == 1
        await scene.intake.close()

    simulate(main())
