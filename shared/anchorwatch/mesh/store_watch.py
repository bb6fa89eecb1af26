"""A NATS server that could not write once refuses every write of that stream from then on, whatever room there is by then.

Only a start anew heals it (measured: 2.15.1). What it had acknowledged was synced before, so nothing is lost by that.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

LOOK_S = 2.0
ROOM_BYTES = 16 << 20
"""With less than this free, a start anew would soon be where it was."""
READ_BYTES_MAX = 1 << 20
_REFUSES = b"JetStream failed to store a msg on stream"
"""What the server says of each write that it refuses so; while the disk is full, its log may be cut."""


@dataclass
class StoreWatch:
    """Reads the server's log as it grows, from its end on. ``store``: where the server writes."""

    log: Path
    store: Path

    def __post_init__(self) -> None:
        self._read_to = self._size()

    def is_stuck(self) -> bool:
        """Whether it has refused a write since this was asked last, though there is room."""
        return self._refused() and shutil.disk_usage(self.store).free >= ROOM_BYTES

    def _refused(self) -> bool:
        size = self._size()
        start = self._read_to if size >= self._read_to else 0  # else it was moved aside
        self._read_to = size
        if size == start:
            return False
        with self.log.open("rb") as log:
            log.seek(max(start, size - READ_BYTES_MAX), os.SEEK_SET)
            return _REFUSES in log.read(READ_BYTES_MAX)

    def _size(self) -> int:
        try:
            return self.log.stat().st_size
        except FileNotFoundError:
            return 0
