"""The worker engine keeps its promises, whatever a handler does. In virtual time, on the bus in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from anchorwatch.bus.port import ConsumerSpec, Message, Stored
from anchorwatch.core.errors import BadInput, NewerSchema, Unavailable
from anchorwatch.core.letters import Address
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.letters import DeadLetters, address_of
from anchorwatch.service.worker import BatchWorker, Done, Malformed, NoAnswer, Result, RetryIn, Skip, Worker
from anchorwatch.testing.bus import SimServer, run
from anchorwatch.topology.streams import DEAD, STREAMS, StreamSpec

from tests.support.letters import letters
from tests.support.services import make_context

DEAD_SPEC = next(spec for spec in STREAMS if spec.name == DEAD)
SPEC = ConsumerSpec("J", ("j.>",), "workers", ack_wait_s=2.0)
Handle = Callable[[str, int], Awaitable[Result | NoAnswer]]


class Scripted(Worker[str]):
    """Handles names as a test says; ``log`` has what was handled, in order. The key of ``a-1`` and ``a-2`` is ``a``."""

    def __init__(self, context: ServiceContext, handle: Handle, *, concurrency: int, letters: bool) -> None:
        super().__init__(
            context, SPEC, concurrency=concurrency, letters=DeadLetters(context) if letters else None
        )
        self._scripted = handle
        self.handled: list[tuple[str, int]] = []
        self.at_work: Counter[str] = Counter()
        self.at_work_max = 0

    def parse(self, stored: Stored) -> str | Skip | Malformed:
        text = stored.payload.decode()
        if text == "newer":
            raise NewerSchema("of a newer release")
        if text == "odd":
            raise ZeroDivisionError("a fault of the parser")
        match text:
            case "skip":
                return Skip()
            case "bad":
                return Malformed("bad")
            case _:
                return text

    def key(self, item: str) -> Hashable:
        return item.split("-", maxsplit=1)[0]

    def address(self, stored: Stored, item: str | None) -> Address:  # noqa: ARG002
        return address_of("test", "record", "default", "J", stored)

    async def handle(self, item: str, attempt: int) -> Result | NoAnswer:
        key = item.split("-", maxsplit=1)[0]
        self.handled.append((item, attempt))
        self.at_work[key] += 1
        assert self.at_work[key] == 1, "items with one key exclude each other"
        self.at_work_max = max(self.at_work_max, self.at_work.total())
        try:
            return await self._scripted(item, attempt)
        finally:
            self.at_work[key] -= 1


class Scene:
    """A stream, and workers on it."""

    def __init__(self, seed: int = 0) -> None:
        self.server = SimServer(seed=seed)
        for spec in (StreamSpec("J", ("j.>",)), DEAD_SPEC):
            self.server.ensure_stream(spec)
        self.outside = self.server.connect(name="outside")
        self.count = 0

    async def publish(self, *names: str) -> None:
        for name in names:
            self.count += 1
            await self.outside.publish(Message(f"j.{self.count}", name.encode()))

    def start(
        self, handle: Handle, *, concurrency: int = 8, letters: bool = False
    ) -> tuple[Scripted, asyncio.Task[None]]:
        context = make_context(self.server.connect(name="service"), "test")
        worker = Scripted(context, handle, concurrency=concurrency, letters=letters)
        return worker, asyncio.create_task(worker.run())

    async def stop(self, worker: Scripted, task: asyncio.Task[None]) -> None:
        worker.context.stopping.set()
        await task

    async def unanswered(self) -> int:
        """The messages that are not acked."""
        consumer = await self.outside.consumer(SPEC)
        state = await consumer.state()
        return state.ack_pending + state.pending


def simulate(main: Coroutine[Any, Any, None], seed: int = 0) -> None:
    run(main, seed)


def now() -> float:
    return asyncio.get_running_loop().time()


async def done(_item: str, _attempt: int) -> Result:
    return Done()


def test_message_is_acked_only_after_its_handler_is_done() -> None:
    async def main() -> None:
        scene, hanging = Scene(), asyncio.Event()

        async def hang(_item: str, _attempt: int) -> Result:
            hanging.set()
            await asyncio.sleep(3600)
            return Done()

        await scene.publish("a")
        _, task = scene.start(hang)
        await hanging.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await scene.unanswered() == 1
        worker, task = scene.start(done)
        await asyncio.sleep(10)
        assert worker.handled[0] == ("a", 2), "a new process does not wait for the redelivery"
        assert await scene.unanswered() == 0
        await scene.stop(worker, task)

    simulate(main())


def test_message_that_is_redelivered_in_hand_joins_it() -> None:
    async def main() -> None:
        scene, hanging = Scene(), asyncio.Event()

        async def slow(_item: str, _attempt: int) -> Result:
            hanging.set()
            await asyncio.sleep(30)
            return Done()

        await scene.publish("a")
        _, task = scene.start(slow)
        await hanging.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        # The next process reads the message at once; the server delivers it to that process some seconds later.
        worker, task = scene.start(slow)
        await asyncio.sleep(60)
        assert worker.handled == [("a", 2)]
        assert await scene.unanswered() == 0
        await scene.stop(worker, task)

    simulate(main())


def test_slow_handler_keeps_its_delivery() -> None:
    async def main() -> None:
        scene = Scene()

        async def slow(_item: str, _attempt: int) -> Result:
            await asyncio.sleep(60)
            return Done()

        await scene.publish("a")
        worker, task = scene.start(slow)
        other, other_task = scene.start(slow)
        await asyncio.sleep(100)
        assert sorted([*worker.handled, *other.handled]) == [("a", 1)]
        await scene.stop(worker, task)
        await scene.stop(other, other_task)

    simulate(main())


def test_items_of_one_key_are_handled_in_order_one_at_a_time() -> None:
    async def main() -> None:
        scene = Scene()

        async def slow(item: str, _attempt: int) -> Result:
            await asyncio.sleep(5 if item == "a-1" else 1)
            return Done()

        await scene.publish("a-1", "a-2", "b-1", "a-3", "c-1")
        worker, task = scene.start(slow, concurrency=8)
        await asyncio.sleep(20)
        names = [item for item, _ in worker.handled]
        assert [name for name in names if name[0] == "a"] == ["a-1", "a-2", "a-3"]
        assert names.index("c-1") < names.index("a-2"), "another key waits for none of them"
        assert worker.at_work_max == 3
        await scene.stop(worker, task)

    simulate(main())


def test_concurrency_is_bounded() -> None:
    async def main() -> None:
        scene = Scene()

        async def slow(_item: str, _attempt: int) -> Result:
            await asyncio.sleep(1)
            return Done()

        await scene.publish(*(f"{n}" for n in range(20)))
        worker, task = scene.start(slow, concurrency=3)
        await asyncio.sleep(20)
        assert (len(worker.handled), worker.at_work_max) == (20, 3)
        await scene.stop(worker, task)

    simulate(main())


def test_failure_of_the_message_becomes_a_dead_letter() -> None:
    async def main() -> None:
        scene = Scene()

        async def fail(_item: str, _attempt: int) -> Result:
            raise ZeroDivisionError("a fault of the handler")

        await scene.publish("a", "odd")
        worker, task = scene.start(fail, letters=True)
        await asyncio.sleep(5)
        assert [letter.state for letter in await letters(scene.outside)] == ["failing", "failing"]
        assert worker.handled == [("a", 1)]
        assert await scene.unanswered() == 0
        await scene.stop(worker, task)

    simulate(main())


@pytest.mark.slow
@pytest.mark.parametrize("error", [Unavailable("away"), ZeroDivisionError("no letters")], ids=repr)
def test_other_failure_is_retried_with_backoff(error: Exception) -> None:
    async def main() -> None:
        scene, tries = Scene(), list[float]()

        async def fail(_item: str, _attempt: int) -> Result:
            tries.append(now())
            if len(tries) <= 8:
                raise error
            return Done()

        await scene.publish("a")
        worker, task = scene.start(fail, letters=isinstance(error, Unavailable))
        await asyncio.sleep(70)
        waits = [later - earlier for earlier, later in pairwise(tries)]
        assert len(waits) == 8
        longest = [0.5, 1, 2, 4, 8, 10, 10, 10]
        assert all(0.5 * s <= waited <= s + 0.5 for s, waited in zip(longest, waits, strict=True)), waits
        # Its many starts are counted, in a letter that people do not see.
        assert all(letter.state == "suspected" for letter in await letters(scene.outside))
        assert await scene.unanswered() == 0
        await scene.stop(worker, task)

    simulate(main())


def test_message_of_a_newer_release_waits() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.publish("newer", "a")
        worker, task = scene.start(done, letters=True)
        await asyncio.sleep(60)
        assert worker.handled == [("a", 1)]
        assert await letters(scene.outside) == []
        assert await scene.unanswered() == 1
        await scene.stop(worker, task)

    simulate(main())


def test_skipped_and_malformed_messages_are_acked() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.publish("skip", "bad")
        worker, task = scene.start(done, letters=True)
        await asyncio.sleep(5)
        assert (worker.handled, await letters(scene.outside)) == ([], [])
        assert await scene.unanswered() == 0
        await scene.stop(worker, task)

    simulate(main())


def test_message_without_answer_goes_to_another_process() -> None:
    async def main() -> None:
        scene = Scene()

        async def leave(_item: str, attempt: int) -> Result | NoAnswer:
            return NoAnswer() if attempt == 1 else Done()

        await scene.publish("a")
        worker, task = scene.start(leave)
        await asyncio.sleep(SPEC.ack_wait_s / 2)
        assert (worker.handled, await scene.unanswered()) == ([("a", 1)], 1)
        await asyncio.sleep(10)
        assert worker.handled == [("a", 1), ("a", 2)]
        assert await scene.unanswered() == 0
        await scene.stop(worker, task)

    simulate(main())


@pytest.mark.parametrize(("takes_s", "left"), [(3.0, 0), (30.0, 1)])
def test_stopping_worker_lets_its_work_end_within_a_limit(takes_s: float, left: int) -> None:
    async def main() -> None:
        scene, begun = Scene(), asyncio.Event()

        async def slow(_item: str, _attempt: int) -> Result:
            begun.set()
            await asyncio.sleep(takes_s)
            return Done()

        await scene.publish("a")
        worker, task = scene.start(slow)
        await begun.wait()
        worker.context.stopping.set()
        stopped_at = now()
        await asyncio.sleep(0)
        await scene.publish("b")
        await task
        assert now() - stopped_at <= Scripted.finish_s + 0.1
        assert (worker.handled, await scene.unanswered()) == ([("a", 1)], left + 1)

    simulate(main())


def test_letter_of_a_message_in_hand_waits() -> None:
    async def main() -> None:
        scene, begun = Scene(), asyncio.Event()

        async def slow(_item: str, attempt: int) -> Result:
            if attempt == 1:
                raise ZeroDivisionError("a fault")
            begun.set()
            await asyncio.sleep(5)
            return Done()

        await scene.publish("a-1")
        worker, task = scene.start(slow, letters=True)
        await asyncio.sleep(1)
        failing = await letters(scene.outside)
        retried = asyncio.create_task(worker.take_up(failing[0]))
        await begun.wait()
        assert isinstance(await worker.take_up(failing[0]), RetryIn)
        await scene.publish("a-2")
        assert isinstance(await retried, Done)
        await asyncio.sleep(10)
        assert [item for item, _ in worker.handled] == ["a-1", "a-1", "a-2"], (
            "what came meanwhile is handled after it"
        )
        await scene.stop(worker, task)

    simulate(main())


class Batched(BatchWorker[str]):
    """Handles names together; one that begins with ``a`` takes 5 s when it is alone, and fails the first time."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context, SPEC, concurrency=8, letters=DeadLetters(context))
        self.batches: list[tuple[float, tuple[str, ...]]] = []

    def parse(self, stored: Stored) -> str:
        return stored.payload.decode()

    def key(self, item: str) -> Hashable:
        return item.split("-", maxsplit=1)[0]

    def address(self, stored: Stored, item: str | None) -> Address:  # noqa: ARG002
        return address_of("test", "record", "default", "J", stored)

    async def handle_together(self, items: Sequence[str]) -> Sequence[Exception | None]:
        fails = not self.batches
        self.batches.append((now(), tuple(items)))
        if not fails and tuple(items) == ("a-1",):
            await asyncio.sleep(5)
        return [ZeroDivisionError("a fault") if fails else None for _ in items]


def test_batch_leaves_out_an_item_that_is_in_hand() -> None:
    async def main() -> None:
        scene = Scene()
        worker = Batched(make_context(scene.server.connect(name="service"), "test"))
        task = asyncio.create_task(worker.run())
        await scene.publish("a-1")
        await asyncio.sleep(1)
        (failing,) = await letters(scene.outside)
        retried = asyncio.create_task(worker.take_up(failing))
        await asyncio.sleep(1)
        await scene.publish("a-2", "b-1", "c-1")
        assert await retried == Done()
        ended = now()
        await asyncio.sleep(5)
        names = [name for _, batch in worker.batches for name in batch]
        assert sorted(names) == ["a-1", "a-1", "a-2", "b-1", "c-1"]
        begun = {name: at for at, batch in worker.batches for name in batch}
        assert max(begun["b-1"], begun["c-1"]) < ended <= begun["a-2"]
        assert await scene.unanswered() == 0
        worker.context.stopping.set()
        await task

    simulate(main())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_every_message_is_done_in_the_end(seed: int) -> None:
    """Two workers that are killed and started again, and a handler that fails, waits and hangs at random."""

    async def main() -> None:
        scene, ended, chance = Scene(seed), Counter[str](), Random(seed)

        async def erratic(item: str, _attempt: int) -> Result | NoAnswer:
            await asyncio.sleep(chance.choice([0.0, 0.1, 3.0]))
            match chance.randrange(5):
                case 0:
                    raise Unavailable("away")
                case 1:
                    raise BadInput("a fault without a letter")
                case 2:
                    return RetryIn(chance.choice([0.0, 1.0]))
                case 3:
                    return NoAnswer()
                case _:
                    pass
            ended[item] += 1
            return Done()

        names = [f"{n % 7}-{n}" for n in range(24)]
        await scene.publish(*names)
        for _ in range(5):
            workers = [scene.start(erratic, concurrency=4) for _ in range(2)]
            await asyncio.sleep(chance.uniform(0.5, 10))
            for _, task in workers:
                task.cancel()
            await asyncio.gather(*(task for _, task in workers), return_exceptions=True)
        worker, task = scene.start(erratic, concurrency=4)
        await asyncio.sleep(150)
        assert await scene.unanswered() == 0
        assert set(ended) == set(names)
        await scene.stop(worker, task)

    simulate(main(), seed)
