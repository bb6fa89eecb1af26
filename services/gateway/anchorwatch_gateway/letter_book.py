"""The dead letters as they stand, kept up by reading on."""

from __future__ import annotations

from collections.abc import Iterator

from anchorwatch.bus.port import Bus, Stored
from anchorwatch.core.errors import Damaged
from anchorwatch.core.letters import SHOWN, DeadLetter
from anchorwatch.journal.letters import DONE_TTL_S, Filed, read_letter
from anchorwatch.topology.streams import DEAD
from anchorwatch.topology.subjects import DEAD_LETTER

PAGE = 256


class LetterBook:
    """Every letter as it stands, by its subject; read on from where it was read to."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._letters: dict[str, Filed] = {}
        self._through = 0

    async def refresh(self) -> None:
        """Read what was written meanwhile.

        Raises:
            Unavailable.
        """
        while True:
            page = await self._bus.range(DEAD, DEAD_LETTER.filter(), self._through + 1, PAGE)
            if page.up_to < self._through:
                # The stream was made anew.
                self._letters, self._through = {}, 0
                continue
            for stored in page.messages:
                self._enter(stored)
            if not page.more:
                return

    def _enter(self, stored: Stored) -> None:
        self._through = max(self._through, stored.sequence)
        try:
            filed = read_letter(stored)
        except Damaged:
            # The next failure of its message writes it anew.
            self._letters.pop(stored.subject, None)
            return
        self._letters[stored.subject] = filed

    def shown(self, now_ms: int) -> Iterator[tuple[DeadLetter, int]]:
        """What people see, each with the sequence of its record."""
        for filed in self._letters.values():
            letter = filed.letter
            if letter is None or letter.state not in SHOWN:
                continue
            if letter.state != "done" or now_ms - letter.last_at_ms < DONE_TTL_S * 1000:
                yield letter, filed.head
