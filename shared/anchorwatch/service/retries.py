"""Retries the messages of dead letters, and settles what follows when a letter is given up.

The stream of dead letters is its own outbox: each record of a letter is delivered to the service that the letter is about, and
says what is to be done. The process keeps nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from anchorwatch.bus.port import ConsumerSpec, Stored
from anchorwatch.core.errors import Damaged, NewerSchema, Unavailable
from anchorwatch.core.letters import WAITING, DeadLetter, counts, early_ms
from anchorwatch.journal.letters import Filed, read_letter
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.keepalive import ACK_WAIT_S
from anchorwatch.service.letters import DeadLetters
from anchorwatch.service.worker import Done, Malformed, Result, RetryIn, Skip, Worker
from anchorwatch.topology.streams import DEAD
from anchorwatch.topology.subjects import DEAD_LETTER

CONCURRENCY = 16
UNAVAILABLE_S = 10.0
# Letters whose time has not come wait here, and must not keep out those whose time has.
ACK_PENDING_MAX = 65_536


class LetterHandler(Protocol):
    """What a service does with its letters; every `Worker` is one. Both may be called again for the same letter."""

    async def take_up(self, letter: DeadLetter) -> Result:
        """Handle the message once more.

        Whatever it raises is a failure of the message, unless it is retryable.
        """
        ...

    async def settle(self, letter: DeadLetter) -> None:
        """The letter is open, or was dropped: give what depends on the message its definite end."""
        ...


class DeadLetterRetrier(Worker[Filed]):
    """Works for one service until ``context.stopping``. ``mine``: which of the service's letters are this process's."""

    resumes = False
    finish_s = 0.0
    retry_s = 1.0

    def __init__(
        self,
        context: ServiceContext,
        letters: DeadLetters,
        handler: LetterHandler,
        service: str,
        durable: str,
        mine: Callable[[DeadLetter], bool] = lambda _: True,
    ) -> None:
        super().__init__(context, letters_consumer(service, durable), concurrency=CONCURRENCY)
        self._letters = letters
        self._handler = handler
        self._mine = mine
        self._waited: dict[int, None] = {}

    def parse(self, stored: Stored) -> Filed | Skip | Malformed:
        try:
            filed = read_letter(stored)
        except NewerSchema:
            raise
        except Damaged as error:
            return Malformed(error.message)
        return filed if filed.letter is not None and self._mine(filed.letter) else Skip()

    def key(self, item: Filed) -> int:
        return item.head

    async def handle(self, item: Filed, attempt: int) -> Result:
        try:
            result = await self._advance(item, attempt)
        except NewerSchema:
            raise
        except Damaged as error:
            self.log.error("letter.damaged", sequence=item.head, reason=error.message)  # noqa: TRY400 - its text says it all
            return Done()
        if isinstance(result, Done):
            self._waited.pop(item.head, None)
        return result

    async def _advance(self, filed: Filed, attempt: int) -> Result:
        letter = filed.letter
        assert letter is not None  # noqa: S101 - parsed so
        if letter.state in ("open", "dropped"):
            await self._settle(letter, attempt)
            return Done()
        if letter.state not in WAITING:
            return Done()
        if wait_ms := early_ms(letter, self.context.clock.now_ms()):
            return RetryIn(wait_ms / 1000)
        address = letter.address
        current = await self._letters.journal.load(address.workspace, address.service, address.id)
        if current.head != filed.head:
            # Its newer record is on its way.
            return Done()
        if self._may_end_the_process(filed, letter, attempt):
            await self._letters.started(filed)
            return Done()
        return await self._retry(filed, letter)

    async def _settle(self, letter: DeadLetter, attempt: int) -> None:
        try:
            await self._handler.settle(letter)
        except Exception as error:
            if not counts(error) or attempt < self._letters.tries_max:
                raise
            # It would fail again. People are shown the letter with its fault, and can retry it.
            self.log.exception("letter.not_settled", letter=letter.address.letter_id)

    def _may_end_the_process(self, filed: Filed, letter: DeadLetter, attempt: int) -> bool:
        """Whether it was handled from here before, and no answer came. A record that says so is delivered again."""
        if filed.head in self._waited:
            return False
        return attempt > (1 if letter.starts else self._letters.tries_max + 1)

    async def _retry(self, filed: Filed, letter: DeadLetter) -> Result:
        try:
            result = await self._handler.take_up(letter)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything, and that is what letters are for
            if await self._letters.failed(letter.address, error):
                return Done()
            return RetryIn(UNAVAILABLE_S if isinstance(error, Unavailable) else self.retry_s)
        if isinstance(result, Done):
            await self._letters.handled(letter.address)
            return result
        if len(self._waited) > ACK_PENDING_MAX:
            # Of letters that have a newer record.
            self._waited.clear()
        self._waited[filed.head] = None
        return result


def letters_consumer(service: str, durable: str) -> ConsumerSpec:
    """The consumer of a service's letters."""
    return ConsumerSpec(
        stream=DEAD,
        filters=(DEAD_LETTER.filter(service=service),),
        durable=durable,
        ack_wait_s=ACK_WAIT_S,
        ack_pending_max=ACK_PENDING_MAX,
    )
