"""Registers of a workspace that people change by orders: each order once, whatever is killed and however often it is repeated.

The register's new record and the order's receipt (written once, for ever) are one atomic write, the receipt directly behind the
record. So a repeated request finds the receipt and the change directly before it, or nothing was done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anchorwatch.bus.port import Bus, Expect, Stored
from anchorwatch.codec import decode, encode
from anchorwatch.core.errors import (
    Damaged,
    IdempotencyConflict,
    Unavailable,
)
from anchorwatch.core.records import Kind, Record
from anchorwatch.journal.commit import DEADLINE_S, Committer, Write
from anchorwatch.journal.lanes import Lanes
from anchorwatch.journal.orders import Asked
from anchorwatch.journal.reading import STALE_ATTEMPTS_MAX, newest
from anchorwatch.journal.register import REFUSALS, Register

Change = Callable[[Stored | None], Record]
"""The new value of the register, given its current one; raises if the order cannot be carried out."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The record of a register, if it has one; of an order that was carried out before, its own record."""

    stored: Stored | None
    replayed: bool = False


class OrderedRegisters:
    """Carries out orders on single registers."""

    def __init__(self, bus: Bus, committer: Committer) -> None:
        self._bus = bus
        self._committer = committer
        self._lanes = Lanes()

    async def order(
        self, subject: str, receipt: str, asked: Asked, change: Change, deadline_s: float = DEADLINE_S
    ) -> tuple[Stored, bool]:
        """Change the register once: (its record, whether the same request had done so before).

        Raises:
            IdempotencyConflict: the key was used for another request. Unavailable.
            And whatever ``change`` raises; then nothing was done.
        """
        async with self._lanes.turn(subject, deadline_s):
            return await self._order((subject, receipt), asked, change, deadline_s)

    async def _order(
        self, subjects: tuple[str, str], asked: Asked, change: Change, deadline_s: float
    ) -> tuple[Stored, bool]:
        subject, receipt = subjects

        async def load() -> _Found:
            found = await newest(self._bus, self._committer.stream, [subject, receipt])
            if receipt in found:
                return _Found(await self._before(subject, found[receipt], asked), replayed=True)
            return _Found(found.get(subject))

        async def write(found: _Found, record: Record) -> _Found:
            return _Found(await self._write(subjects, found.stored, asked, record, deadline_s))

        def decide(found: _Found) -> Record | None:
            return None if found.replayed else change(found.stored)

        try:
            after = await Register(subject, load, write).change(decide)
        except REFUSALS:
            # What refuses it may be this very request, sent twice at once, and carried out since it was looked for.
            after = await load()
            if not after.replayed:
                raise
        assert after.stored is not None  # noqa: S101 - an order always writes
        return after.stored, after.replayed

    async def was_ordered(self, receipt: str) -> bool:
        """Whether an order under this receipt was carried out.

        Raises:
            Unavailable.
        """
        return await self._given(receipt) is not None

    async def _given(self, receipt: str) -> Stored | None:
        return (await newest(self._bus, self._committer.stream, [receipt])).get(receipt)

    async def _write(
        self,
        subjects: tuple[str, str],
        before: Stored | None,
        asked: Asked,
        record: Record,
        deadline_s: float,
    ) -> Stored:
        subject, receipt = subjects
        said, _ = encode(record)
        proof = {"by": asked.by, "body_sha256": asked.body_sha256}
        given, _ = encode(Record(Kind.CONTROL, record.at_ms, record.writer, proof))
        last = await self._committer.commit(
            [Write(subject, said), Write(receipt, given, Expect(receipt, 0))],
            Expect(subject, before.sequence if before else 0),
            deadline_s,
        )
        return Stored(subject, last - 1, record.at_ms, said)

    async def _before(self, subject: str, receipt: Stored, asked: Asked) -> Stored:
        first = decode(receipt.payload).body["body_sha256"]
        if first != asked.body_sha256:
            raise IdempotencyConflict(
                "the key was used before with another request",
                hint="use a new key for a new request",
                first_body_sha256=first,
            )
        for _ in range(STALE_ATTEMPTS_MAX):
            page = await self._bus.range(self._committer.stream, subject, receipt.sequence - 1, limit=1)
            if page.messages:
                return page.messages[0]
            if page.up_to >= receipt.sequence:
                raise Damaged(f"sequence {receipt.sequence}: no record precedes this receipt")
        raise Unavailable(f"no server has answered up to sequence {receipt.sequence}")
