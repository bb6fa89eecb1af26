"""The worker engine: one loop from a durable consumer to a handler, and from its result to an ack.

Every service that works through a stream does so with a `Worker`. Whatever its handler does:

1. A message is acked only after its handler returned `Done`, or after its dead letter is written.
2. At most ``concurrency`` items are at work. Items with the same key are handled one at a time, in order of arrival.
3. A message that is delivered again while it is in flight joins the earlier delivery and gets the same answer.
4. Every delivery in flight is kept alive until it is answered, so that a short ack wait returns only the work of a dead process.
5. A failure ends neither the worker nor the work on other messages. It becomes a dead letter where it is the message's own
   fault; any other is retried with backoff and jitter.
6. When the service stops, nothing more is taken, and the items at work get ``finish_s`` to end. What has not ended is delivered
   again, to another process.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Hashable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from anchorwatch.bus.port import ConsumerSpec, Delivery, Stored
from anchorwatch.core.errors import AnchorWatchError, Damaged, NewerSchema, NotFound, Unavailable
from anchorwatch.core.letters import Address, DeadLetter, counts
from anchorwatch.core.times import backoff_s
from anchorwatch.edges import Edge, reached
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.intake import Intake
from anchorwatch.service.keepalive import KeepAlive
from anchorwatch.service.letters import DeadLetters

Item = TypeVar("Item")

NEWER_RELEASE_S = 10.0
"""How long a message of a newer release is left to a process of that release."""
IN_FLIGHT_S = 0.5
"""Delay of a dead letter whose message is in flight."""


@dataclass(frozen=True, slots=True)
class Done:
    """The message needs no more work: it is acked."""


@dataclass(frozen=True, slots=True)
class RetryIn:
    """The message needs more work: it is delivered again after ``seconds``."""

    seconds: float


Result = Done | RetryIn
"""What a handler answers about one message."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Another process answers for the message: it is neither acked nor asked for again."""


@dataclass(frozen=True, slots=True)
class Skip:
    """The message asks nothing of this worker: it is acked."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """The message can never be read: it is acked, and ``reason`` is logged."""

    reason: str


class Unhandleable(AnchorWatchError):
    """No handler can ever handle the message: its dead letter is open at once."""

    code = "malformed"


@dataclass(slots=True)
class InHand(Generic[Item]):
    """An item from its arrival to its answer, with all deliveries of its message. ``attempt``: 1 only for the first ever."""

    item: Item
    stored: Stored
    attempt: int
    deliveries: list[Delivery] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Arrival:
    stored: Stored
    attempt: int
    delivery: Delivery | None = None


class Worker(abc.ABC, Generic[Item]):
    """Works through one durable consumer until ``context.stopping``.

    A subclass says what a message means (`parse`), which items exclude each other (`key`), and what to do (`handle`):

    >>> class Greeter(Worker[str]):
    ...     def parse(self, stored: Stored) -> str | Skip | Malformed:
    ...         return stored.payload.decode() or Skip()
    ...
    ...     def key(self, item: str) -> Hashable:
    ...         return item
    ...
    ...     async def handle(self, item: str, attempt: int) -> Result:
    ...         print(f"Hello {item}, attempt {attempt}")
    ...         return RetryIn(0.1) if attempt == 1 else Done()
    >>> greeter = Greeter(context, spec, concurrency=8)
    >>> await greeter.run()
    Hello Ada, attempt 1
    Hello Ada, attempt 2

    ``letters``: where failures are written down; without them, every failure is retried.
    """

    ack_edge: ClassVar[Edge | None] = None
    resumes: ClassVar[bool] = True
    """Whether a new process reads the messages that its predecessor left unanswered, rather than wait for their redelivery."""
    pull_max: ClassVar[int] = 128
    finish_s: ClassVar[float] = 5.0
    retry_s: ClassVar[float] = 0.5
    retry_s_max: ClassVar[float] = 10.0

    def __init__(
        self,
        context: ServiceContext,
        spec: ConsumerSpec,
        *,
        concurrency: int,
        letters: DeadLetters | None = None,
    ) -> None:
        self.context = context
        self.name = spec.durable
        self.log = context.log.bind(consumer=spec.durable)
        self.letters = letters
        self.intake = Intake(context.bus, spec, context.stopping, context.crashes)
        self._concurrency = concurrency
        self._alive = KeepAlive()
        self._in_hand: dict[Hashable, deque[InHand[Item]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # --- what a subclass says

    @abc.abstractmethod
    def parse(self, stored: Stored) -> Item | Skip | Malformed:
        """What the message means.

        Raises:
            NewerSchema: a process of a newer release can read it.
        """

    @abc.abstractmethod
    def key(self, item: Item) -> Hashable:
        """Items with the same key are never handled at the same time."""

    @abc.abstractmethod
    async def handle(self, item: Item, attempt: int) -> Result | NoAnswer:
        """Bring the item as far as is possible now. ``attempt`` is 1 only where no process can have begun it before.

        Whatever it raises is a failure of the message, unless the error is retryable.
        """

    def address(self, stored: Stored, item: Item | None) -> Address | None:  # noqa: ARG002
        """The address of the message's dead letter; None: it can have none. ``item`` is None where `parse` failed."""
        return None

    async def opened(self) -> None:
        """Called when the consumer is attached, before the first message is handled."""

    async def resumed(self) -> None:
        """Called when work on the messages that an earlier process left unanswered has begun."""

    async def retry(self, item: Item, letter: DeadLetter) -> Result:  # noqa: ARG002
        """Handle the item of a dead letter once more."""
        result = await self.handle(item, 2)
        return RetryIn(IN_FLIGHT_S) if isinstance(result, NoAnswer) else result

    # --- the loop

    async def run(self) -> None:
        """Take messages until the service stops, then let those at work end."""
        alive = asyncio.create_task(self._alive.run(), name="keep-alive")
        try:
            await self.intake.open()
            await self.opened()
            left = [_Arrival(stored, 2) for stored in await self.intake.unfinished()] if self.resumes else []
            while left:
                room = await self._room()
                await self._start(left[:room])
                left = left[room:]
            await self.resumed()
            while not self.context.stopping.is_set():
                deliveries = await self.intake.next(min(await self._room(), self.pull_max))
                for delivery in deliveries:
                    self._alive.hold(delivery)
                await self._start([_Arrival(each.stored, each.attempt, each) for each in deliveries])
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=self.finish_s)
        finally:
            for task in (alive, *self._tasks):
                task.cancel()
            await asyncio.gather(alive, *self._tasks, return_exceptions=True)
            await self.intake.close()

    async def _room(self) -> int:
        """The number of messages that may be taken; waits until it is at least one."""
        while len(self._tasks) >= self._concurrency:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        return self._concurrency - len(self._tasks)

    async def _start(self, arrivals: Sequence[_Arrival]) -> None:
        for arrival in arrivals:
            in_hand = await self._read(arrival)
            if in_hand is not None and self._take(in_hand):
                key = self.key(in_hand.item)
                self._spawn(self._serve(key, self._in_hand[key]))

    async def _read(self, arrival: _Arrival) -> InHand[Item] | None:
        """The item of a message; None: the message is answered."""
        stored, deliveries = arrival.stored, [arrival.delivery] if arrival.delivery else []
        try:
            parsed = self.parse(stored)
        except Exception as error:  # noqa: BLE001 - one message must not end the worker
            await self._answer(deliveries, await self.failed(stored, None, arrival.attempt, error))
            return None
        if isinstance(parsed, Malformed):
            self.log.error("message.malformed", sequence=stored.sequence, reason=parsed.reason)
        if isinstance(parsed, (Skip, Malformed)):
            for delivery in deliveries:
                self._alive.drop(delivery)
                await delivery.ack()
            return None
        return InHand(parsed, stored, arrival.attempt, deliveries)

    def _take(self, in_hand: InHand[Item]) -> bool:
        """Start an item; False: it waits for another of its key."""
        key = self.key(in_hand.item)
        queue = self._in_hand.get(key)
        if queue is not None:
            _join(queue, in_hand)
            return False
        self._in_hand[key] = deque([in_hand])
        return True

    def _release(self, in_hand: InHand[Item]) -> None:
        """An item of `_take` has been handled: those that wait after it are next."""
        key = self.key(in_hand.item)
        queue = self._in_hand[key]
        queue.popleft()
        if queue:
            self._spawn(self._serve(key, queue))
        else:
            del self._in_hand[key]

    async def _serve(self, key: Hashable, queue: deque[InHand[Item]]) -> None:
        """Handle the items of one key, in order."""
        try:
            while queue:
                current = queue[0]
                result = await self._handle(current)
                queue.popleft()
                await self._answer(current.deliveries, result)
        finally:
            del self._in_hand[key]

    async def _handle(self, current: InHand[Item]) -> Result | NoAnswer:
        try:
            async with self._guard(current) as admitted:
                return await self.handle(current.item, current.attempt) if admitted else Done()
        except Exception as error:  # noqa: BLE001 - one message must not end the worker
            return await self.failed(current.stored, current.item, current.attempt, error)

    @contextlib.asynccontextmanager
    async def _guard(self, current: InHand[Item]) -> AsyncIterator[bool]:
        """Around a handler: a message whose handler repeatedly ends the process becomes a dead letter (`DeadLetters.guard`)."""
        address = self.address(current.stored, current.item)
        if self.letters is None or address is None:
            yield True
            return
        async with self.letters.guard(address, current.attempt) as admitted:
            yield admitted

    async def failed(self, stored: Stored, item: Item | None, attempt: int, error: Exception) -> Result:
        """The result for a message whose handler raised ``error``."""
        sequence = stored.sequence
        later = RetryIn(backoff_s(attempt, self.retry_s, self.retry_s_max, self.context.random.random()))
        if isinstance(error, NewerSchema):
            self.log.error("message.left_to_newer_release", sequence=sequence, reason=error.message)
            return RetryIn(NEWER_RELEASE_S)
        if not counts(error):
            reason = error.message if isinstance(error, AnchorWatchError) else repr(error)
            self.log.warning("message.waits", sequence=sequence, reason=reason, wait_s=later.seconds)
            return later
        if isinstance(error, Unhandleable):
            self.log.error("message.malformed", sequence=sequence, reason=error.message)
        else:
            self.log.error("message.failed", sequence=sequence, exc_info=error)
        address = self.address(stored, item)
        if self.letters is None or address is None:
            return later
        if isinstance(error, Unhandleable):
            return Done() if await self.letters.try_show(address, error) else later
        return Done() if await self.letters.failed(address, error) else later

    async def _answer(self, deliveries: Sequence[Delivery], result: Result | NoAnswer) -> None:
        for delivery in deliveries:
            self._alive.drop(delivery)
            match result:
                case Done():
                    if self.ack_edge is not None:
                        reached(self.ack_edge)
                    await delivery.ack()
                case RetryIn(seconds):
                    await delivery.nak(seconds)
                case NoAnswer():
                    pass

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- dead letters (`retries.LetterHandler`)

    async def take_up(self, letter: DeadLetter) -> Result:
        """Handle the message of a dead letter once more.

        Raises:
            Damaged, NotFound, Unavailable, and whatever `retry` raises.
        """
        current = await self.of_letter(letter)
        if current is None:
            return Done()
        if self.key(current.item) in self._in_hand:
            return RetryIn(IN_FLIGHT_S)
        async with self.hold(current):
            return await self.retry(current.item, letter)

    async def settle(self, letter: DeadLetter) -> None:
        """Called when a letter is open or was dropped. By default nothing depends on its message."""

    async def of_letter(self, letter: DeadLetter) -> InHand[Item] | None:
        """The item of a letter's message; None: it asks nothing of this worker.

        Raises:
            Damaged: it cannot be read. NotFound: the stream no longer has it. Unavailable.
        """
        if self.letters is None:
            raise NotFound("this worker has no dead letters")
        stored = await self.letters.message(letter.address)
        parsed = self.parse(stored)
        if isinstance(parsed, Malformed):
            raise Damaged(parsed.reason, sequence=stored.sequence)
        return None if isinstance(parsed, Skip) else InHand(parsed, stored, 2)

    @contextlib.asynccontextmanager
    async def hold(self, current: InHand[Item]) -> AsyncIterator[None]:
        """Hold the item of a letter for the block. Deliveries meanwhile wait or are repeated.

        Raises:
            Unavailable: it is in flight already.
        """
        if self.key(current.item) in self._in_hand:
            raise Unavailable("the message is being handled now")
        self._take(current)
        try:
            yield
        finally:
            self._release(current)
            await self._answer(current.deliveries, RetryIn(IN_FLIGHT_S))


class BatchWorker(Worker[Item]):
    """Handles the messages of one pull together, in order, before it pulls again; ``concurrency`` is the size of a batch."""

    @abc.abstractmethod
    async def handle_together(self, items: Sequence[Item]) -> Sequence[Exception | None]:
        """Handle the items; for each the error that it failed with, None: it is done. One item must not fail the others."""

    async def handle(self, item: Item, attempt: int) -> Result:  # noqa: ARG002
        (error,) = await self.handle_together([item])
        if error is not None:
            raise error
        return Done()

    async def _start(self, arrivals: Sequence[_Arrival]) -> None:
        arrived = [in_hand for arrival in arrivals if (in_hand := await self._read(arrival)) is not None]
        batch = [in_hand for in_hand in arrived if self._take(in_hand)]
        suspects = [in_hand for in_hand in batch if self._is_suspect(in_hand)]
        plain = [in_hand for in_hand in batch if in_hand not in suspects]
        errors = await self.handle_together([in_hand.item for in_hand in plain])
        await asyncio.gather(*map(self._settle_one, plain, errors))
        for in_hand in suspects:
            # One that may have ended the process each time goes alone, so that no other is blamed for it.
            result = await self._handle(in_hand)
            self._release(in_hand)
            await self._answer(in_hand.deliveries, result)

    def _is_suspect(self, in_hand: InHand[Item]) -> bool:
        address = self.address(in_hand.stored, in_hand.item)
        return (
            self.letters is not None
            and address is not None
            and self.letters.suspicious(address, in_hand.attempt)
        )

    async def _settle_one(self, in_hand: InHand[Item], error: Exception | None) -> None:
        result: Result = Done()
        if error is not None:
            result = await self.failed(in_hand.stored, in_hand.item, in_hand.attempt, error)
        self._release(in_hand)
        await self._answer(in_hand.deliveries, result)


def _join(queue: deque[InHand[Item]], arrived: InHand[Item]) -> None:
    """Queue an item after those of its key; a message in flight only gets one more delivery."""
    for earlier in queue:
        if earlier.stored.sequence == arrived.stored.sequence:
            earlier.deliveries += arrived.deliveries
            return
    queue.append(arrived)
