"""What a service does with a message that it cannot handle: it writes that down, acks, and is free for the next.

`retries.DeadLetterRetrier` retries it. So no failing message stays in a consumer, where it would be retried silently forever
and block later ones.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import replace

from anchorwatch.bus.port import Stored
from anchorwatch.core import letters as machine
from anchorwatch.core.errors import AnchorWatchError, Unavailable
from anchorwatch.core.letters import Address, DeadLetter, Fault, fault_of
from anchorwatch.journal.letters import Filed, LetterJournal, find_message
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.logs import redact

KNOWN_MAX = 16_384
ALONE_S_MAX = 5.0


def address_of(
    service: str, handler: str, workspace: str, stream: str, stored: Stored, session: str = ""
) -> Address:
    """The address of a message's letter: its id derives from the message's place."""
    id_ = f"{stream.lower().replace('_', '')}-{stored.sequence}"
    return Address(
        workspace, service, id_, handler, stream, stored.sequence, stored.subject, stored.time_ms, session
    )


class DeadLetters:
    """Writes the letters of one service."""

    def __init__(self, context: ServiceContext) -> None:
        self._bus = context.bus
        self._clock = context.clock
        self._log = context.log
        self._random = context.random
        self._tries_max = context.settings.dead_letter_tries
        self.journal = LetterJournal(context.bus, context.identity.execution_id)
        # What this process has come to an answer on, which no handler does that ends its process.
        self._answered: OrderedDict[Address, None] = OrderedDict()
        self._one = asyncio.Lock()

    async def failed(self, address: Address, error: BaseException) -> bool:
        """Record that the handler failed. True: the letter is written, and the message may be acked; the letter is retried.

        False also if the message is not to blame (`core.letters.counts`). An error while writing is not raised: the caller
        would leave its message unanswered forever.
        """
        if not machine.counts(error):
            return False
        fault = fault_of(error)
        fault = replace(fault, text=redact(fault.text))
        now_ms, spread = self._clock.now_ms(), self._random.random()
        try:
            filed = await self.journal.change(
                address,
                lambda letter: machine.failed(letter, address, fault, now_ms, self._tries_max, spread),
                now_ms,
            )
        except Unavailable:
            return False
        except Exception:  # noqa: BLE001 - said above
            self._log.exception("a letter could not be written", letter=address.letter_id)
            return False
        self._tell(filed, fault.text)
        return True

    async def show(self, address: Address, fault: Fault) -> None:
        """Open the letter of a message at once: trying again by itself would be the same.

        Raises:
            Unavailable.
        """
        fault = replace(fault, text=redact(fault.text))
        now_ms = self._clock.now_ms()
        filed = await self.journal.change(
            address, lambda letter: machine.shown(letter, address, fault, now_ms), now_ms
        )
        self._tell(filed, fault.text)

    async def try_show(self, address: Address, error: AnchorWatchError) -> bool:
        """As `show`; False: the letter could not be written."""
        try:
            await self.show(address, fault_of(error))
        except Unavailable:
            return False
        return True

    def suspicious(self, address: Address, attempt: int) -> bool:
        """Whether a message was delivered more often than it may fail, and no handler of this process came to an answer yet."""
        return attempt > self._tries_max and address not in self._answered

    @contextlib.asynccontextmanager
    async def guard(self, address: Address, attempt: int) -> AsyncIterator[bool]:
        """Around a handler. Whether it may be started; False: the message was set aside, and may be acked.

        A first few deliveries need no look. From then on each start is written down before, so that a handler which ends
        its process is found out; once is enough in a process that got over it. Such starts come one after the other: of
        those that a process takes with it, one is to blame.

        Raises:
            Unavailable: it could not be written.
        """
        if not self.suspicious(address, attempt):
            yield True
            if attempt >= self._tries_max - 1:
                # Shortly before it would become suspicious: what only waits here is known for that.
                self._note(address)
            return
        async with self._alone():
            admitted = await self._admit(address)
            try:
                yield admitted
            except Exception:
                # A failure is an answer too: the process is still there.
                await self._answer(address)
                raise
            if admitted:
                await self._answer(address)

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        held = False
        try:
            async with asyncio.timeout(ALONE_S_MAX):
                held = await self._one.acquire()
        except TimeoutError:
            # The one before takes its time. It did not end the process so far.
            pass
        try:
            yield
        finally:
            if held:
                self._one.release()

    async def _admit(self, address: Address) -> bool:
        now_ms = self._clock.now_ms()

        def change(letter: DeadLetter | None) -> DeadLetter | None:
            if letter is not None and letter.state not in ("suspected", "done"):
                return None
            return machine.started(letter, address, now_ms, self._tries_max)

        filed = await self.journal.change(address, change, now_ms)
        self._tell(filed, machine.CRASHED)
        return filed.letter is not None and filed.letter.state == "suspected"

    async def _answer(self, address: Address) -> None:
        """The handler came to an answer, and the process is still there."""
        self._note(address)
        now_ms = self._clock.now_ms()

        def change(letter: DeadLetter | None) -> DeadLetter | None:
            # One start without an answer is a restart at an unlucky moment, and not worth a record.
            return machine.answered(letter, now_ms) if letter is not None and letter.starts > 1 else None

        with contextlib.suppress(AnchorWatchError):
            # Else the count stays too high by what a restart adds to it.
            await self.journal.change(address, change, now_ms)

    def _note(self, address: Address) -> None:
        self._answered[address] = None
        if len(self._answered) > KNOWN_MAX:
            self._answered.popitem(last=False)

    async def started(self, filed: Filed) -> None:
        """A letter's message is about to be handled once more, and may end this process: write the start down.

        Raises:
            Unavailable.
        """
        assert filed.letter is not None  # noqa: S101 - it was read
        address, now_ms = filed.letter.address, self._clock.now_ms()

        def change(letter: DeadLetter | None) -> DeadLetter | None:
            if letter is None or letter.state not in machine.WAITING or filed.letter != letter:
                return None
            return machine.started(letter, address, now_ms, self._tries_max)

        self._tell(await self.journal.change(address, change, now_ms), machine.CRASHED)

    async def handled(self, address: Address) -> None:
        """Its message was handled after all.

        Raises:
            Unavailable.
        """
        now_ms = self._clock.now_ms()
        await self.journal.change(
            address, lambda letter: machine.handled(letter, now_ms) if letter else None, now_ms
        )

    async def message(self, address: Address) -> Stored:
        """The message that a letter is about.

        Raises:
            NotFound: it was deleted. Unavailable.
        """
        return await find_message(self._bus, address)

    @property
    def tries_max(self) -> int:
        return self._tries_max

    def _tell(self, filed: Filed, why: str) -> None:
        letter = filed.letter
        if letter is None or letter.state == "suspected" or not filed.fresh:
            return
        told = self._log.error if letter.state == "open" else self._log.warning
        told(
            "a message cannot be handled",
            letter=letter.address.letter_id,
            state=letter.state,
            tries=letter.tries,
            reason=why,
        )
