"""Commit: one id for all attempts, read back on any doubt, and three answers: committed, fenced, unavailable.

A fenced write lands only directly behind the sequence it was fenced on. So after any error the first message of the
fenced family after that sequence tells: it is ours, by its id and its bytes (committed), another's (fenced), or there
is none (try again).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from anchorwatch.bus.port import BatchRefused, Bus, Expect, Message, Stored, WrongLastSequence
from anchorwatch.core.errors import Damaged, Fenced, Unavailable
from anchorwatch.journal.grouping import Grouping
from anchorwatch.journal.truncation import check_end

DEADLINE_S = 15.0
"""Long enough for a server restart or a leader election."""
RETRY_PAUSE_S = 0.1
ATTEMPT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Write:
    """A subject and the bytes for it.

    ``expect``: a fence of its own, where it is not the first of its commit. ``ttl_s``: the server removes the message
    after so long; None: never.
    """

    subject: str
    payload: bytes
    expect: Expect | None = None
    ttl_s: int | None = None


class Committer:
    """Writes to one journal stream. One for each process: commits that queue up go together (`grouping`).

    >>> from anchorwatch.testing.bus import SimServer
    >>> from anchorwatch.topology.streams import StreamSpec
    >>> server = SimServer()
    >>> server.ensure_stream(StreamSpec("J", ("j.>",), atomic_batches=True))
    >>> committer = Committer(server.connect(), "J")
    >>> await committer.commit([Write("j.a", b"1"), Write("j.b", b"2")], Expect("j.>", 0))
    2
    >>> try:
    ...     await committer.commit([Write("j.a", b"3")], Expect("j.>", 0))
    ... except Fenced:
    ...     print("another writer was first")
    another writer was first
    """

    def __init__(
        self, bus: Bus, stream: str, new_id: Callable[[], str] = lambda: secrets.token_hex(8)
    ) -> None:
        self._bus = bus
        self.stream = stream
        self._new_id = new_id
        self._grouping = Grouping(bus, ATTEMPT_TIMEOUT_S)
        self._checked = bus.connections

    async def commit(
        self,
        writes: Sequence[Write],
        fence: Expect,
        deadline_s: float = DEADLINE_S,
        *,
        behind: int | None = None,
    ) -> int:
        """Append ``writes`` in order, all or none, if the fence holds; returns the last one's sequence (they follow on).

        ``behind``: the last readable record of the fenced family, if the server cannot read the one after it,
        and reports none in a fence.

        Raises:
            Fenced: another writer's record follows ``fence.sequence``, or a write's own fence; nothing of
            ours was stored.
            Damaged: the server cannot read the record after the fence; nothing was stored.
            Unavailable: not known to be stored within ``deadline_s``. It may be stored later; its fence
            keeps it harmless.
        """
        attempt_id = self._new_id()
        messages = [
            Message(
                write.subject,
                write.payload,
                message_id=f"{attempt_id}.{index}",
                expect=fence if index == 0 else write.expect,
                ttl_s=write.ttl_s,
            )
            for index, write in enumerate(writes)
        ]
        try:
            async with asyncio.timeout(deadline_s):
                if self._checked != self._bus.connections:
                    await self._check_end()
                return await self._until_known(messages, fence, behind)
        except TimeoutError:
            raise Unavailable(
                f"the journal did not confirm a write to {writes[0].subject} within {deadline_s:g} s",
                hint="is the NATS server up? `anchorwatch status`",
            ) from None

    async def _check_end(self) -> None:
        """See that a server that was away has not lost what it had told before; else what comes now would take its place."""
        while (now := self._bus.connections) != self._checked:
            try:
                await check_end(self._bus, self.stream)
                self._checked = now
            except Unavailable:
                await asyncio.sleep(RETRY_PAUSE_S)

    async def _until_known(self, messages: Sequence[Message], fence: Expect, behind: int | None) -> int:
        while True:
            try:
                ack = await self._grouping.send(messages)
                if not ack.duplicate:
                    return ack.sequence
            except (WrongLastSequence, BatchRefused, Unavailable):
                pass
            if behind is None:
                landed = await self._landed(messages, fence)
            else:
                landed = await self._landed_behind_the_lost(messages, replace(fence, sequence=behind))
            if landed is not None:
                return landed
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _landed(self, messages: Sequence[Message], fence: Expect) -> int | None:
        """The last sequence of our write if it is stored; None: the family has no record after the fence."""
        try:
            first = await self.first_behind(fence)
            if first is None:
                await self._check_own_fences(messages[1:])
        except Unavailable:
            return None
        if first is None:
            return None
        # The bytes too: an id that two writers came to share must not make one's record the other's success.
        if not _is(first, messages[0]):
            raise Fenced(f"{first.subject} was written at {first.sequence} by another writer")
        return first.sequence + len(messages) - 1

    async def _landed_behind_the_lost(self, messages: Sequence[Message], fence: Expect) -> int | None:
        try:
            return await self._landed(messages, fence)
        except Damaged:
            # Still nothing that can be read.
            return None

    async def _check_own_fences(self, messages: Sequence[Message]) -> None:
        for message in messages:
            other = await self.first_behind(message.expect) if message.expect else None
            # One of ours may have landed since the first fence was looked at; then that will tell.
            if other is not None and not _is(other, message):
                raise Fenced(f"{other.subject} was written at {other.sequence} by another writer")

    async def first_behind(self, fence: Expect) -> Stored | None:
        """The first message of the fenced family after the fence's sequence, as far as the answering server knows."""
        page = await self._bus.range(self.stream, fence.subject, fence.sequence + 1, limit=1)
        return page.messages[0] if page.messages else None

    async def write_once(
        self, subject: str, payload: bytes, deadline_s: float = DEADLINE_S
    ) -> tuple[Stored, bool]:
        """Write a write-once register; returns (its message, whether it is ours).

        Raises:
            Unavailable: as `commit`.
        """
        fence = Expect(subject, 0)
        try:
            sequence = await self.commit([Write(subject, payload)], fence, deadline_s)
            return Stored(subject, sequence, 0, payload), True
        except Fenced:
            first = await self.first_behind(fence)
            if first is None:
                raise Unavailable(f"{subject} could not be read back") from None
            return first, False


def _is(stored: Stored, message: Message) -> bool:
    return (stored.message_id, stored.payload) == (message.message_id, message.payload)
