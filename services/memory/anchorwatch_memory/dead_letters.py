"""Records that a fault of this code kept out of the projections: each has a dead letter, and later records are entered."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

from anchorwatch.bus.port import Bus
from anchorwatch.core.letters import DeadLetter, Fault
from anchorwatch.service.letters import DeadLetters, address_of
from anchorwatch.service.worker import Done, Result, RetryIn
from anchorwatch.topology.subjects import parse_register

from anchorwatch_memory.fold import FAULT
from anchorwatch_memory.projections import Projections, ProjectionsDamaged

if TYPE_CHECKING:
    from anchorwatch_memory.follow import Follower

SERVICE = "memory"
RETRY_S = 1.0


class FaultReporter:
    """Writes the dead letters of one file of projections, which cover a journal stream."""

    def __init__(self, bus: Bus, stream: str, projections: Projections, letters: DeadLetters) -> None:
        self._bus = bus
        self._stream = stream
        self._projections = projections
        self._letters = letters

    async def report(self) -> None:
        """Ensure that each record that could not be entered has its dead letter.

        Raises:
            Unavailable.
        """
        for sequence, reason in (await self._projections.read(_faults))[0]:
            page = await self._bus.range(self._stream, ">", sequence, limit=1)
            if page.messages and page.messages[0].sequence == sequence:
                stored = page.messages[0]
                ref = parse_register(stored.subject).ref
                address = address_of(SERVICE, "record", ref.workspace, self._stream, stored, ref.session)
                await self._letters.show(address, Fault("internal", reason))

    async def has(self, sequence: int) -> bool:
        """Whether this record could not be entered."""
        faults, _ = await self._projections.read(_faults)
        return any(each == sequence for each, _ in faults)


def _faults(db: sqlite3.Connection) -> Sequence[tuple[int, str]]:
    rows: Sequence[tuple[int, str]] = db.execute(
        "SELECT sequence, why FROM timeline WHERE kind = ? ORDER BY sequence", (FAULT,)
    ).fetchall()
    return rows


class RebuildRetry:
    """Retries a dead letter by a rebuild of the projections, once for each order."""

    def __init__(self, follower: Follower, faults: FaultReporter, letters: DeadLetters) -> None:
        self._follower = follower
        self._faults = faults
        self._letters = letters
        self._started: set[tuple[str, int]] = set()

    async def take_up(self, letter: DeadLetter) -> Result:
        """Rebuild the projections; open the letter again if its record still cannot be entered."""
        address = letter.address
        order = (address.letter_id, letter.due_at_ms)
        if order not in self._started:
            self._started.add(order)
            self._follower.note_damage(ProjectionsDamaged("a person ordered a rebuild"))
        if self._follower.rebuilding or self._follower.sequence < address.sequence:
            return RetryIn(RETRY_S)
        if not await self._faults.has(address.sequence):
            return Done()
        await self._letters.show(address, letter.fault)
        return RetryIn(RETRY_S)

    async def settle(self, letter: DeadLetter) -> None:
        """Nothing depends on the letter: the timeline says that the record is missing."""
