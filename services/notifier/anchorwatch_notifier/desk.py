"""Reads the records that may concern people, and has each brought to every channel that wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from anchorwatch.bus.port import ConsumerSpec, Delivery, Stored
from anchorwatch.core.errors import AnchorWatchError, NewerSchema
from anchorwatch.core.letters import Address, DeadLetter, counts
from anchorwatch.edges import Edge, reached
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.intake import Intake
from anchorwatch.service.keepalive import ACK_WAIT_S, KeepAlive
from anchorwatch.service.letters import DeadLetters, address_of
from anchorwatch.service.worker import Done, Result, RetryIn
from anchorwatch.topology.streams import DEAD, journal_stream
from anchorwatch.topology.subjects import ANCHOR, DEAD_LETTER, DONE, EFFECT, GATE, LATE, SWITCH

from anchorwatch_notifier.notices import Notice, read_notice
from anchorwatch_notifier.sender import Sender

SHARD = "0"
SERVICE = "notifier"
IN_HAND_MAX = 128
AGAIN_S_MIN, AGAIN_S_MAX = 0.1, 60.0
FAULT_S = 5.0
FINISH_S_MAX = 5.0
_SESSIONS = (
    ANCHOR.filter(shard=SHARD),
    EFFECT.filter(shard=SHARD, register=DONE),
    EFFECT.filter(shard=SHARD, register=GATE),
    LATE.filter(shard=SHARD),
)
CONSUMER = ConsumerSpec(
    stream=journal_stream(SHARD),
    filters=(*_SESSIONS, SWITCH.filter(shard=SHARD)),
    filters_before=_SESSIONS,
    durable="notifier",
    ack_wait_s=ACK_WAIT_S,
    # What a broken channel owes waits here for up to a day, and must not keep out what others are owed.
    ack_pending_max=65_536,
)
LETTERS = ConsumerSpec(
    stream=DEAD,
    filters=(DEAD_LETTER.filter(),),
    durable="notifier-letters",
    ack_wait_s=ACK_WAIT_S,
    ack_pending_max=65_536,
)


@dataclass(slots=True)
class _InHand:
    """A record at work, with every delivery of it. ``first``: nobody can have worked on it before."""

    stored: Stored
    notice: Notice
    first: bool
    deliveries: list[Delivery] = field(default_factory=list)

    @property
    def attempt(self) -> int:
        return max((delivery.attempt for delivery in self.deliveries), default=1)


class Desk:
    """Works on one stream until ``context.stopping``. ``read`` says what a record has to tell.

    A record is acked when all its channels have ended; the registers say which have.
    """

    def __init__(
        self,
        context: ServiceContext,
        senders: Sequence[Sender],
        letters: DeadLetters,
        spec: ConsumerSpec = CONSUMER,
        read: Callable[[Stored], Notice | None] = read_notice,
    ) -> None:
        self._context = context
        self._senders = senders
        self._letters = letters
        self._stream = spec.stream
        self._read_notice = read
        self._intake = Intake(context.bus, spec, context.stopping, context.crashes)
        self._alive = KeepAlive()
        self._in_hand: dict[int, _InHand] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Take records until told to stop, then let what is being sent end."""
        alive = asyncio.create_task(self._alive.run(), name="in-progress")
        try:
            await self._intake.open()
            self._context.ready.set()
            for stored in await self._intake.unfinished():
                await self._room()
                await self._begin(stored, None)
            while not self._context.stopping.is_set():
                for delivery in await self._intake.next(await self._room()):
                    await self._begin(delivery.stored, delivery)
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=FINISH_S_MAX)
        finally:
            for task in (alive, *self._tasks):
                task.cancel()
            await asyncio.gather(alive, *self._tasks, return_exceptions=True)
            await self._intake.close()

    async def _room(self) -> int:
        while len(self._tasks) >= IN_HAND_MAX:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        return IN_HAND_MAX - len(self._tasks)

    async def _begin(self, stored: Stored, delivery: Delivery | None) -> None:
        try:
            notice = self._read(stored)
        except Exception as error:
            # A fault of the reading, which must not end the service again and again.
            self._context.log.exception("a record cannot be understood", sequence=stored.sequence)
            if await self._letters.failed(self._address(stored), error) and delivery is not None:
                await delivery.ack()
            return
        if notice is None:
            if delivery is not None:
                await delivery.ack()
            return
        deliveries = [delivery] if delivery is not None else []
        for each in deliveries:
            self._alive.hold(each)
        at_work = self._in_hand.get(stored.sequence)
        if at_work is not None:
            at_work.deliveries += deliveries
            return
        first = delivery is not None and delivery.attempt == 1
        self._in_hand[stored.sequence] = in_hand = _InHand(stored, notice, first, deliveries)
        task = asyncio.create_task(self._work(in_hand), name=f"notice {stored.sequence}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _read(self, stored: Stored) -> Notice | None:
        """The notice, if any channel wants it. What cannot be read tells nothing; others quarantine its session."""
        try:
            notice = self._read_notice(stored)
        except AnchorWatchError as error:
            self._context.log.warning(
                "a record cannot be read", sequence=stored.sequence, reason=error.message
            )
            return None
        return notice if notice is not None and self._wanting(notice) else None

    def _wanting(self, notice: Notice) -> list[Sender]:
        return [sender for sender in self._senders if sender.route.wants(notice)]

    def _address(self, stored: Stored) -> Address:
        tokens = stored.subject.split(".")
        workspace = tokens[2] if self._stream == DEAD else tokens[3]
        session = "" if self._stream == DEAD else tokens[4]
        return address_of(SERVICE, "record", workspace, self._stream, stored, session)

    async def take_up(self, letter: DeadLetter) -> Result:
        """Bring a record's notice to the channels that have not had it, once more."""
        notice = self._read(await self._letters.message(letter.address))
        if notice is None:
            return Done()
        wanting = self._wanting(notice)
        waits = await asyncio.gather(*(sender.deliver(notice, first=False) for sender in wanting))
        again_s = _soonest(waits)
        return Done() if again_s is None else RetryIn(again_s)

    async def settle(self, letter: DeadLetter) -> None:
        """Nothing depends on a notice. Nobody is notified of it either: this service's faults are told in the list alone."""

    async def _work(self, in_hand: _InHand) -> None:
        address = self._address(in_hand.stored)
        try:
            async with self._letters.guard(address, in_hand.attempt) as admitted:
                again_s = await self._deliver(in_hand, address) if admitted else None
        except AnchorWatchError as error:
            self._context.log.warning("a notification waits", record=address.sequence, reason=error.message)
            again_s = FAULT_S
        del self._in_hand[in_hand.stored.sequence]
        for delivery in in_hand.deliveries:
            self._alive.drop(delivery)
            if again_s is not None:
                await delivery.nak(again_s)
            else:
                reached(Edge.NOTIFIER_ACK_BEFORE)
                await delivery.ack()

    async def _deliver(self, in_hand: _InHand, address: Address) -> float | None:
        """Bring a notice to all that want it. None: each has ended, or is set aside; else seconds to wait."""
        sent = (
            sender.deliver(in_hand.notice, first=in_hand.first) for sender in self._wanting(in_hand.notice)
        )
        waits: list[float | None] = []
        for outcome in await asyncio.gather(*sent, return_exceptions=True):
            match outcome:
                case Exception():
                    waits.append(await self._failed(address, outcome))
                case BaseException():
                    raise outcome
                case _:
                    waits.append(outcome)
        return _soonest(waits)

    async def _failed(self, address: Address, error: Exception) -> float | None:
        if isinstance(error, NewerSchema):
            self._context.log.warning(
                "a notification is left to a newer release", record=address.sequence, why=error.message
            )
            return AGAIN_S_MAX
        if not counts(error):
            return FAULT_S
        self._context.log.error("a notification waits, for a fault", record=address.sequence, exc_info=error)
        return None if await self._letters.failed(address, error) else FAULT_S


def _soonest(waits: Sequence[float | None]) -> float | None:
    again_s = [wait for wait in waits if wait is not None]
    return min(max(min(again_s), AGAIN_S_MIN), AGAIN_S_MAX) if again_s else None
