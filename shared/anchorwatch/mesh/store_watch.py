"""Detects a NATS server that refuses every write of a stream after one failed write, even once space is free again.

Only a restart ends this (measured: 2.15.1). Acknowledged writes are synced, so the restart loses none of them.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

WATCH_INTERVAL_S = 2.0
FREE_BYTES_MIN = 16 << 20
"""With less free space, a write would soon fail again after a restart."""
READ_BYTES_MAX = 1 << 20
_REFUSES = b"JetStream failed to store a msg on stream"
"""The server logs it for each refused write; while the disk is full, the log may be incomplete."""


@dataclass
class StoreWatch:
    """Follows the server's log from its current end. ``store`` is the server's directory."""

    log: Path
    store: Path

    def __post_init__(self) -> None:
        self._position = self._size()

    def is_stuck(self) -> bool:
        """Whether the server has refused a write since the last call although there is free space."""
        return self._refused() and shutil.disk_usage(self.store).free >= FREE_BYTES_MIN

    def _refused(self) -> bool:
        size = self._size()
        start = self._position if size >= self._position else 0  # else the log was rotated
        self._position = size
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
