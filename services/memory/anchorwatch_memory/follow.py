"""Follows the journal: every record is entered in order, once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog
from anchorwatch.bus.port import Bus, Consumer, ConsumerSpec, Delivery, Stored
from anchorwatch.core.errors import AnchorWatchError, NotFound, Unavailable
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.truncation import Proof, hold_mesh, standing_hold
from anchorwatch.service.context import Clock

from anchorwatch_memory.dead_letters import FaultReporter
from anchorwatch_memory.lost import records_after
from anchorwatch_memory.projections import Projections, ProjectionsDamaged
from anchorwatch_memory.store import START, Position

BATCH = 256
FETCH_S = 1.0
ACK_WAIT_S = 10.0
RETRY_S = 0.5
WAIT_S_MAX = 2.0
COMPLETE_ATTEMPTS_MAX = 1_000
BEFORE = "before"
"""Ending of a file that holds more than the journal. The position that it had reached is before it."""


class Follower:
    """Keeps the projections current. ``durable`` is the consumer's name.

    The projections hold their own position, written in one transaction with the rows. If the consumer's position differs
    (the process died in between, or the file is another one), the consumer is created again after the file's position.
    """

    def __init__(
        self,
        bus: Bus,
        stream: str,
        filter_: str,
        durable: str,
        projections: Projections,
        clock: Clock,
        log: structlog.stdlib.BoundLogger,
        faults: FaultReporter | None = None,
    ) -> None:
        self._faults = faults
        self._bus = bus
        self._stream = stream
        self._filter = filter_
        self._durable = durable
        self._projections = projections
        self._clock = clock
        self._log = log
        self._consumer: Consumer | None = None
        self._position = START
        self._moved = asyncio.Condition()
        self._connection = 0
        self._damage: ProjectionsDamaged | None = None
        # Records without a dead letter may have been kept out.
        self._unreported = True

    @property
    def sequence(self) -> int:
        """The last journal sequence in the projections."""
        return self._position.sequence

    @property
    def rebuilding(self) -> bool:
        """Whether a rebuild of the file is due."""
        return self._damage is not None

    async def start(self) -> None:
        """Compare file, consumer and journal, and attach.

        Raises:
            Unavailable: the bus is not connected.
        """
        await self.check()
        self._consumer = await self._attach()

    async def check(self) -> None:
        """Compare the journal with what was read. If it has lost its end, hold the mesh.

        Raises:
            Unavailable: the comparison is not possible now.
        """
        connection = self._bus.connections
        position = await self._checked_position()
        if position != self._position:
            await self._set(position)
            await self.close()
        async with self._moved:
            self._connection = connection
            self._moved.notify_all()

    async def checked(self) -> None:
        """Wait until `check` has compared the journal on this connection.

        Raises:
            Unavailable: it has not in time.
        """
        try:
            async with asyncio.timeout(WAIT_S_MAX), self._moved:
                await self._moved.wait_for(lambda: self._connection == self._bus.connections)
        except TimeoutError:
            raise Unavailable("memory has not compared the journal yet") from None

    async def run(self, stopping: asyncio.Event) -> None:
        """Follow until ``stopping``."""
        while not stopping.is_set():
            try:
                if self._damage is not None:
                    await self._rebuild(self._damage)
                if self._connection != self._bus.connections:
                    # A server that was restarted may have lost its journal's end.
                    await self.check()
                if self._consumer is None:
                    await self.start()
                await self.step(FETCH_S)
            except ProjectionsDamaged as damage:
                self.note_damage(damage)
            except NotFound:
                # The consumer or the whole journal was removed: compare again.
                self._consumer = None
            except AnchorWatchError as error:
                self._log.warning("follow.failed", code=error.code, reason=str(error), retry_in_s=RETRY_S)
                self._consumer = None
                await self._clock.sleep(RETRY_S)

    async def step(self, timeout_s: float) -> int:
        """Enter the next records; returns the number of messages."""
        assert self._consumer is not None  # noqa: S101 - started
        deliveries = await self._consumer.fetch(BATCH, timeout_s)
        if not deliveries:
            return 0
        await self._take(deliveries)
        await self._report_faults()
        # Only now: an acked message is never delivered again.
        for delivery in deliveries:
            reached(Edge.MEMORY_ACK_BEFORE)
            await delivery.ack()
        return len(deliveries)

    async def reach(self, sequence: int, wait_s: float = WAIT_S_MAX) -> None:
        """Wait for the projections to reach ``sequence``, for a bounded time."""
        if self._position.sequence >= sequence:
            return
        try:
            async with asyncio.timeout(min(wait_s, WAIT_S_MAX)), self._moved:
                await self._moved.wait_for(lambda: self._position.sequence >= sequence)
        except TimeoutError:
            return

    def note_damage(self, damage: ProjectionsDamaged) -> None:
        """Request a rebuild of the file, before the next records are entered."""
        self._damage = damage

    async def close(self) -> None:
        if self._consumer is not None:
            await self._consumer.close()
            self._consumer = None

    async def _take(self, deliveries: Sequence[Delivery]) -> None:
        messages = sorted((delivery.stored for delivery in deliveries), key=lambda stored: stored.sequence)
        new = [stored for stored in messages if stored.sequence > self._position.sequence]
        if new and not _is_gapless(self._position.sequence, new):
            new = await self._complete(new)
        if new:
            reached(Edge.MEMORY_STORE_BEFORE)
            position = await self._projections.project(new)
            reached(Edge.MEMORY_STORE_AFTER)
            self._unreported |= position.faulty
            await self._set(position)

    async def _report_faults(self) -> None:
        """Write dead letters before the ack. After a crash in between, the next records cause it."""
        if self._unreported and self._faults is not None:
            await self._faults.report()
        self._unreported = False

    async def _complete(self, delivered: Sequence[Stored]) -> list[Stored]:
        """The delivered messages, and the missing ones before and between them, read from the stream.

        A lost delivery comes again only after later ones. A message that the stream lacks too was erased.
        """
        found = {stored.sequence: stored for stored in delivered}
        through, start = delivered[-1].sequence, self._position.sequence + 1
        for _ in range(COMPLETE_ATTEMPTS_MAX):
            page = await self._bus.range(self._stream, self._filter, start, BATCH, reach=through)
            found |= {each.sequence: each for each in page.messages if each.sequence <= through}
            start = max(start, page.messages[-1].sequence + 1) if page.messages else start
            if start > through:
                return sorted(found.values(), key=lambda stored: stored.sequence)
            if not page.messages:
                # A replica answered that lags the one that delivered.
                await self._clock.sleep(RETRY_S)
        raise Unavailable(f"the journal from {start} to {through} could not be read")

    async def _rebuild(self, damage: ProjectionsDamaged) -> None:
        self._log.error("projections.rebuild", reason=damage.message)
        await self.close()
        await self._projections.reset()
        await self._set(START)
        self._damage = None

    async def _set(self, position: Position) -> None:
        async with self._moved:
            self._position = position
            self._moved.notify_all()

    async def _checked_position(self) -> Position:
        """The position of the file; a file of another journal is replaced."""
        try:
            position = await self._projections.position()
        except ProjectionsDamaged as damage:
            await self._rebuild(damage)
            return START
        if position == START or await self._is_known(position):
            return position
        await self._hold_mesh(position)
        # Named by its position: the journal may lose more of its end, or be replaced by an older copy.
        aside = f"{position.sequence}.{BEFORE}"
        self._log.error("journal.replaced_or_truncated", position=position.sequence, file_ending=aside)
        await self._projections.reset(aside)
        return await self._projections.position()

    async def _hold_mesh(self, position: Position) -> None:
        last = (await self._bus.stream_state(self._stream)).last_sequence
        records, _ = await self._projections.read(lambda db: records_after(db, last))
        page = await self._bus.range(self._stream, position.subject, position.sequence, 1)
        replaced = any(each.sequence == position.sequence for each in page.messages)
        proof = Proof(position.sequence, self._durable, records, replaced=replaced)
        gap = await hold_mesh(self._bus, self._stream, proof, self._durable)
        if gap is not None:
            self._log.error("journal.truncated", first=gap.first, through=gap.through, mesh="held")

    async def _is_known(self, position: Position) -> bool:
        state = await self._bus.stream_state(self._stream)
        if state.last_sequence < position.sequence:
            return False
        page = await self._bus.range(self._stream, position.subject, position.sequence, 1)
        if page.messages and page.messages[0].sequence == position.sequence:
            return page.messages[0].time_ms == position.time_ms
        # Erased, or lost as another witness may have reported. Another journal would have a different message here.
        hold = await standing_hold(self._bus, self._stream)
        gaps = (*hold.before, *hold.gaps)
        return not any(gap.first <= position.sequence <= gap.through for gap in gaps)

    async def _attach(self) -> Consumer:
        spec = ConsumerSpec(
            self._stream,
            (self._filter,),
            self._durable,
            ack_wait_s=ACK_WAIT_S,
            ack_pending_max=4 * BATCH,
            start_sequence=self._position.sequence + 1,
        )
        consumer = await self._bus.consumer(spec)
        state = await consumer.state()
        if state.ack_floor_sequence == self._position.sequence:
            return consumer
        await consumer.close()
        await self._bus.delete_consumer(self._stream, self._durable)
        return await self._bus.consumer(spec)


def _is_gapless(before: int, messages: Sequence[Stored]) -> bool:
    return messages[0].sequence == before + 1 and messages[-1].sequence - before == len(
        {stored.sequence for stored in messages}
    )
