"""The notifier's worker: reads the records that may concern people, and delivers each to every channel that wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anchorwatch.bus.port import ConsumerSpec, Stored
from anchorwatch.core.errors import AnchorWatchError, NewerSchema
from anchorwatch.core.letters import Address, DeadLetter
from anchorwatch.edges import Edge
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.keepalive import ACK_WAIT_S
from anchorwatch.service.letters import DeadLetters, address_of
from anchorwatch.service.worker import Done, Malformed, Result, RetryIn, Skip, Worker
from anchorwatch.topology.streams import DEAD, journal_stream
from anchorwatch.topology.subjects import (
    ANCHOR_CHANGE,
    DEAD_LETTER,
    EFFECT,
    GATE,
    LATE,
    NOTICE,
    RESOLVED,
    SWITCH,
    UNKNOWN,
)

from anchorwatch_notifier.notices import Notice, read_notice
from anchorwatch_notifier.sender import Sender

SERVICE = "notifier"
CONCURRENCY = 128
RETRY_S_MIN, RETRY_S_MAX = 0.1, 60.0
CONSUMER = ConsumerSpec(
    stream=journal_stream(),
    filters=(
        ANCHOR_CHANGE.filter(),
        *(EFFECT.filter(register=each) for each in (UNKNOWN, RESOLVED, NOTICE, GATE)),
        LATE.filter(),
        SWITCH.filter(),
    ),
    durable="notifier",
    ack_wait_s=ACK_WAIT_S,
    # Notices for a broken channel wait here for up to a day, and must not keep out those for other channels.
    ack_pending_max=65_536,
)
LETTERS = ConsumerSpec(
    stream=DEAD,
    filters=(DEAD_LETTER.filter(),),
    durable="notifier-letters",
    ack_wait_s=ACK_WAIT_S,
    ack_pending_max=65_536,
)


@dataclass(frozen=True, slots=True)
class NoticedRecord:
    """A record, and the notice that at least one channel wants."""

    stored: Stored
    notice: Notice


class NoticeWorker(Worker[NoticedRecord]):
    """Delivers the notices of one stream. ``read`` says what a record has to tell.

    A record is acked when its delivery has ended on all its channels; the registers say on which it has.
    """

    ack_edge = Edge.NOTIFIER_ACK_BEFORE

    def __init__(
        self,
        context: ServiceContext,
        senders: Sequence[Sender],
        letters: DeadLetters,
        spec: ConsumerSpec = CONSUMER,
        read: Callable[[Stored], Notice | None] = read_notice,
    ) -> None:
        super().__init__(context, spec, concurrency=CONCURRENCY, letters=letters)
        self._senders = senders
        self._stream = spec.stream
        self._read_notice = read

    async def opened(self) -> None:
        self.context.ready.set()

    def parse(self, stored: Stored) -> NoticedRecord | Skip | Malformed:
        try:
            notice = self._read_notice(stored)
        except NewerSchema:
            raise
        except AnchorWatchError as error:
            # It says nothing to people. The planner that loads the session quarantines it, and that is notified.
            return Malformed(error.message)
        return NoticedRecord(stored, notice) if notice is not None and self._wanting(notice) else Skip()

    def key(self, item: NoticedRecord) -> int:
        return item.stored.sequence

    def address(self, stored: Stored, item: NoticedRecord | None) -> Address:  # noqa: ARG002
        tokens = stored.subject.split(".")
        workspace = tokens[2] if self._stream == DEAD else tokens[3]
        session = "" if self._stream == DEAD else tokens[4]
        return address_of(SERVICE, "record", workspace, self._stream, stored, session)

    async def handle(self, item: NoticedRecord, attempt: int) -> Result:
        notice = item.notice
        deliveries = (sender.deliver(notice, first=attempt == 1) for sender in self._wanting(notice))
        results: list[Result] = []
        for outcome in await asyncio.gather(*deliveries, return_exceptions=True):
            match outcome:
                case Exception():
                    # A failure on one channel is recorded while another still waits.
                    results.append(await self.failed(item.stored, item, attempt, outcome))
                case BaseException():
                    raise outcome
                case _:
                    results.append(outcome)
        return _soonest(results)

    async def retry(self, item: NoticedRecord, letter: DeadLetter) -> Result:  # noqa: ARG002
        wanting = self._wanting(item.notice)
        return _soonest(
            await asyncio.gather(*(sender.deliver(item.notice, first=False) for sender in wanting))
        )

    def _wanting(self, notice: Notice) -> list[Sender]:
        return [sender for sender in self._senders if sender.route.wants(notice)]


def _soonest(results: Sequence[Result]) -> Result:
    waits_s = [result.seconds for result in results if isinstance(result, RetryIn)]
    return RetryIn(min(max(min(waits_s), RETRY_S_MIN), RETRY_S_MAX)) if waits_s else Done()
