"""How far the journal is known here."""

from __future__ import annotations


class Seen:
    """The highest journal sequence that this gateway has told any client.

    Reads of projections wait for it, so whoever was given a receipt finds it in the lists that follow.
    """

    def __init__(self) -> None:
        self.sequence = 0

    def note(self, sequence: int) -> None:
        """Somebody was told of ``sequence``."""
        self.sequence = max(self.sequence, sequence)
