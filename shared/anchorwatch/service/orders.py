"""Tries again what was set aside, and sees to what follows when that is given up.

The stream of dead letters is its own outbox: each record of a letter is delivered to the service that it is about, and says
what is to be done. Nothing is kept in the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from anchorwatch.bus.port import ConsumerSpec, Delivery
from anchorwatch.core.errors import AnchorWatchError, Damaged, Unavailable
from anchorwatch.core.letters import WAITING, DeadLetter, counts, early_ms
from anchorwatch.core.times import backoff_s
from anchorwatch.journal.letters import Filed, read_letter
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.intake import Intake
from anchorwatch.service.keepalive import ACK_WAIT_S, KeepAlive
from anchorwatch.service.letters import DeadLetters
from anchorwatch.service.worker import Done, Result, RetryIn
from anchorwatch.topology.streams import DEAD
from anchorwatch.topology.subjects import DEAD_LETTER

AT_ONCE_MAX = 16
FAULT_S, FAULT_S_MAX = 1.0, 10.0
# Letters whose time has not come wait here, and must not keep out those whose time has.
ACK_PENDING_MAX = 65_536


class Handler(Protocol):
    """What a service does with its letters. Both may be called again for the same letter, also at the same time."""

    async def take_up(self, letter: DeadLetter) -> Result:
        """Handle the message once more.

        Whatever it raises is a failure of the message, unless it is retryable.
        """
        ...

    async def settle(self, letter: DeadLetter) -> None:
        """The letter is open, or was dropped: give what depends on the message its definite end."""
        ...


class Orders:
    """Works for one service until ``context.stopping``. ``mine``: which of the service's letters are this process's."""

    def __init__(
        self,
        context: ServiceContext,
        letters: DeadLetters,
        handler: Handler,
        service: str,
        durable: str,
        mine: Callable[[DeadLetter], bool] = lambda _: True,
    ) -> None:
        self._context = context
        self._letters = letters
        self._handler = handler
        self._mine = mine
        self._alive = KeepAlive()
        self._intake = Intake(context.bus, orders_consumer(service, durable), context.stopping)
        self._tasks: set[asyncio.Task[None]] = set()
        self._waited: dict[int, None] = {}

    async def run(self) -> None:
        """Follow the letters until told to stop."""
        alive = asyncio.create_task(self._alive.run(), name="letters in-progress")
        try:
            while not self._context.stopping.is_set():
                for delivery in await self._intake.next(await self._room()):
                    self._alive.hold(delivery)
                    task = asyncio.create_task(self._answer(delivery), name="letter")
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        finally:
            for task in (alive, *self._tasks):
                task.cancel()
            await asyncio.gather(alive, *self._tasks, return_exceptions=True)
            await self._intake.close()

    async def _room(self) -> int:
        while len(self._tasks) >= AT_ONCE_MAX:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        return AT_ONCE_MAX - len(self._tasks)

    async def _answer(self, delivery: Delivery) -> None:
        try:
            result = await self._advance(delivery)
        except Damaged as error:
            self._context.log.error("a letter cannot be read", reason=error.message)  # noqa: TRY400 - its text says it all
            result = Done()
        except Exception as error:  # noqa: BLE001 - what settles a letter may fail, and is then done again
            reason = error.message if isinstance(error, AnchorWatchError) else repr(error)[:200]
            self._context.log.warning("a letter waits", sequence=delivery.stored.sequence, reason=reason)
            result = RetryIn(backoff_s(delivery.attempt, FAULT_S, FAULT_S_MAX, self._context.random.random()))
        self._alive.drop(delivery)
        match result:
            case Done():
                self._waited.pop(delivery.stored.sequence, None)
                await delivery.ack()
            case RetryIn(seconds):
                await delivery.nak(seconds)

    async def _advance(self, delivery: Delivery) -> Result:
        """Do what a record of a letter asks for."""
        filed = read_letter(delivery.stored)
        letter = filed.letter
        if letter is None or not self._mine(letter):
            return Done()
        if letter.state in ("open", "dropped"):
            await self._settle(letter, delivery.attempt)
            return Done()
        if letter.state not in WAITING:
            return Done()
        if wait_ms := early_ms(letter, self._context.clock.now_ms()):
            return RetryIn(wait_ms / 1000)
        address = letter.address
        current = await self._letters.journal.load(address.workspace, address.service, address.id)
        if current.head != filed.head:
            # Its newer record is on its way.
            return Done()
        if self._may_end_the_process(delivery, letter):
            await self._letters.started(filed)
            return Done()
        return await self._take_up(filed, letter)

    async def _settle(self, letter: DeadLetter, attempt: int) -> None:
        try:
            await self._handler.settle(letter)
        except Exception as error:
            if not counts(error) or attempt < self._letters.tries_max:
                raise
            # It would fail again. People are shown the letter as it is, and a retry is what helps.
            self._context.log.exception("a letter cannot be settled", letter=letter.address.letter_id)

    def _may_end_the_process(self, delivery: Delivery, letter: DeadLetter) -> bool:
        """Whether it was handled from here before, and no answer came. A record that says so is delivered anew."""
        if delivery.stored.sequence in self._waited:
            return False
        return delivery.attempt > (1 if letter.starts else self._letters.tries_max + 1)

    async def _take_up(self, filed: Filed, letter: DeadLetter) -> Result:
        try:
            result = await self._handler.take_up(letter)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything, and that is what letters are for
            if await self._letters.failed(letter.address, error):
                return Done()
            return RetryIn(FAULT_S_MAX if isinstance(error, Unavailable) else FAULT_S)
        if isinstance(result, Done):
            await self._letters.handled(letter.address)
            return result
        if len(self._waited) > ACK_PENDING_MAX:
            # Of letters that were written anew since.
            self._waited.clear()
        self._waited[filed.head] = None
        return result


def orders_consumer(service: str, durable: str) -> ConsumerSpec:
    """The consumer of a service's letters."""
    return ConsumerSpec(
        stream=DEAD,
        filters=(DEAD_LETTER.filter(service=service),),
        durable=durable,
        ack_wait_s=ACK_WAIT_S,
        ack_pending_max=ACK_PENDING_MAX,
    )
