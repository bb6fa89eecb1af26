"""Reads the journal's records that may concern people, and has each brought to every channel that wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from anchorwatch.bus.port import ConsumerSpec, Delivery, Stored
from anchorwatch.core.errors import AnchorWatchError, NewerSchema, Unavailable
from anchorwatch.edges import Edge, reached
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.intake import Intake
from anchorwatch.service.keepalive import ACK_WAIT_S, KeepAlive
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import ANCHOR, DONE, EFFECT, GATE, LATE

from anchorwatch_notifier.notices import Notice, read_notice
from anchorwatch_notifier.sender import Sender

SHARD = "0"
IN_HAND_MAX = 128
AGAIN_S_MIN, AGAIN_S_MAX = 0.1, 60.0
FAULT_S = 5.0
FINISH_S_MAX = 5.0
CONSUMER = ConsumerSpec(
    stream=journal_stream(SHARD),
    filters=(
        ANCHOR.filter(shard=SHARD),
        EFFECT.filter(shard=SHARD, register=DONE),
        EFFECT.filter(shard=SHARD, register=GATE),
        LATE.filter(shard=SHARD),
    ),
    durable="notifier",
    ack_wait_s=ACK_WAIT_S,
    # What a broken channel owes waits here for up to a day, and must not keep out what others are owed.
    ack_pending_max=65_536,
)


@dataclass(slots=True)
class _InHand:
    """A record at work, with every delivery of it. ``first``: nobody can have worked on it before."""

    notice: Notice
    first: bool
    deliveries: list[Delivery] = field(default_factory=list)


class Desk:
    """Works until ``context.stopping``. A record is acked when all its channels have ended; the registers say which have."""

    def __init__(self, context: ServiceContext, senders: Sequence[Sender]) -> None:
        self._context = context
        self._senders = senders
        self._intake = Intake(context.bus, CONSUMER, context.stopping)
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
        notice = self._read(stored)
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
        self._in_hand[stored.sequence] = in_hand = _InHand(notice, first, deliveries)
        task = asyncio.create_task(self._work(in_hand), name=f"notice {stored.sequence}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _read(self, stored: Stored) -> Notice | None:
        """The notice, if any channel wants it. What cannot be read tells nothing; others quarantine its session."""
        try:
            notice = read_notice(stored)
        except AnchorWatchError as error:
            self._context.log.warning(
                "a record cannot be read", sequence=stored.sequence, reason=error.message
            )
            return None
        if notice is None or not any(sender.route.wants(notice) for sender in self._senders):
            return None
        return notice

    async def _work(self, in_hand: _InHand) -> None:
        wanted = [sender for sender in self._senders if sender.route.wants(in_hand.notice)]
        waits = await asyncio.gather(*(self._deliver(sender, in_hand) for sender in wanted))
        del self._in_hand[in_hand.notice.sequence]
        again_s = [wait for wait in waits if wait is not None]
        for delivery in in_hand.deliveries:
            self._alive.drop(delivery)
            if again_s:
                await delivery.nak(min(max(min(again_s), AGAIN_S_MIN), AGAIN_S_MAX))
            else:
                reached(Edge.NOTIFIER_ACK_BEFORE)
                await delivery.ack()

    async def _deliver(self, sender: Sender, in_hand: _InHand) -> float | None:
        try:
            return await sender.deliver(in_hand.notice, first=in_hand.first)
        except Unavailable:
            return FAULT_S
        except NewerSchema as error:
            self._context.log.warning(
                "a notification is left to a newer release", record=in_hand.notice.sequence, why=error.message
            )
            return AGAIN_S_MAX
        except Exception:
            # The notifier's own faults are told to nobody but the log.
            self._context.log.exception("a notification waits, for a fault", record=in_hand.notice.sequence)
            return FAULT_S
