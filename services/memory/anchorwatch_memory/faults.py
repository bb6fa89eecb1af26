"""Records that could not be entered, for a fault of this code: each has a dead letter, and nothing behind it waits."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from anchorwatch.bus.port import Bus
from anchorwatch.core.letters import Fault
from anchorwatch.service.letters import DeadLetters, address_of
from anchorwatch.topology.subjects import parse_register

from anchorwatch_memory.fold import FAULT
from anchorwatch_memory.port import Projections

SERVICE = "memory"


class Faults:
    """The letters of one file of projections, which cover a journal stream."""

    def __init__(self, bus: Bus, stream: str, projections: Projections, letters: DeadLetters) -> None:
        self._bus = bus
        self._stream = stream
        self._projections = projections
        self._letters = letters

    async def tell(self) -> None:
        """See that each record that could not be entered has its letter.

        Raises:
            Unavailable.
        """
        for sequence, why in (await self._projections.read(_faults))[0]:
            page = await self._bus.range(self._stream, ">", sequence, limit=1)
            if page.messages and page.messages[0].sequence == sequence:
                stored = page.messages[0]
                ref = parse_register(stored.subject).ref
                address = address_of(SERVICE, "record", ref.workspace, self._stream, stored, ref.session)
                await self._letters.show(address, Fault("internal", why))

    async def stands(self, sequence: int) -> bool:
        """Whether that record could not be entered."""
        found, _ = await self._projections.read(_faults)
        return any(each == sequence for each, _ in found)


def _faults(db: sqlite3.Connection) -> Sequence[tuple[int, str]]:
    found: Sequence[tuple[int, str]] = db.execute(
        "SELECT sequence, why FROM timeline WHERE kind = ? ORDER BY sequence", (FAULT,)
    ).fetchall()
    return found
