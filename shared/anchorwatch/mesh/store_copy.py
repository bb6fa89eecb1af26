"""The files of what nothing else could bring back, as they were before their server started: it takes away what it cannot read.

Of a stream one block of which it cannot read, a NATS server that was killed before removes all files when it starts; in the
newest block it cuts off what stands behind the damage (measured: 2.15.1). So what there was is kept until it is seen
what the server has left of it: a full block by another name for the same file, which costs nothing, the newest by a copy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog

from anchorwatch.mesh.files import DataDir
from anchorwatch.service.made import KEPT
from anchorwatch.topology.streams import JOURNAL_SHARDS, journal_stream

_FULL = b"cmp"
"""How a block begins that is full, and that the server therefore replaces, and never writes into."""
_STARTING = "starting"
_JOURNALS = frozenset(map(journal_stream, JOURNAL_SHARDS))


@dataclass(frozen=True, slots=True)
class StoreCopy:
    """``store``: where the server writes. ``aside``: where copies are kept, on the same file system."""

    store: Path
    aside: Path

    def take(self) -> str:
        """Before the server starts. What a start before took away that never got so far as to be looked at, as `compare`.

        Raises:
            OSError: nothing, or not everything, could be kept.
        """
        said = self.compare()
        for source in self._files():
            copy = self.aside / _STARTING / source.relative_to(self.store)
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if source.suffix == ".blk" and _is_full(source):
                os.link(source, copy)
            else:
                shutil.copy2(source, copy)
        return said

    def compare(self) -> str:
        """Once the server serves: what it has taken away, and where that is kept; empty: nothing.

        Raises:
            OSError: it could not be looked at.
        """
        kept = self.aside / _STARTING
        less = sorted(
            str(copy.relative_to(kept))
            for copy in kept.rglob("*.blk")
            if _is_less(self.store / copy.relative_to(kept), copy)
        )
        if not less:
            shutil.rmtree(kept, ignore_errors=True)
            return ""
        place = self.aside / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}"
        kept.rename(place)
        return (
            "the server could not read all that it had stored when it started, and has taken away of"
            f" {', '.join(less)}; all is in {place} as it was (docs/protocol.md, Damage)"
        )

    def _files(self) -> Iterator[Path]:
        for name in KEPT:
            for stream in self.store.glob(f"jetstream/*/streams/{name}"):
                yield from (path for path in stream.rglob("*") if path.is_file())


class StoreGuard:
    """Has the copy taken and compared around each start of the server, and says what it finds. No fault of it ends a start."""

    def __init__(self, data: DataDir, log: structlog.stdlib.BoundLogger, say: Callable[[str], None]) -> None:
        self._copy = StoreCopy(data.nats_store, data.nats_aside)
        self._log = log
        self._say = say

    def before(self) -> None:
        """The server is about to be started."""
        self._tell(self._copy.take)

    def behind(self) -> None:
        """It has become ready."""
        self._tell(self._copy.compare)

    def _tell(self, look: Callable[[], str]) -> None:
        try:
            said = look()
        except OSError as error:
            self._log.error("the server's files could not be kept over a start", reason=str(error))
            return
        if said:
            self._log.error("what the server stored is not whole", what=said)
            self._say(said)


def _is_full(block: Path) -> bool:
    with block.open("rb") as file:
        return file.read(len(_FULL)) == _FULL


def _is_less(block: Path, copy: Path) -> bool:
    """Whether the block is less than it was; one that has become full meanwhile is smaller, and holds the same.

    What is old goes by itself, as long as there is anything left of its stream; but for the journal, which keeps all.
    """
    lets_go = block.parent.parent.name not in _JOURNALS and any(block.parent.glob("*.blk"))
    try:
        smaller = block.stat().st_size < copy.stat().st_size
    except FileNotFoundError:
        return copy.stat().st_size > 0 and not lets_go
    return smaller and (not lets_go if _is_full(copy) else not _is_full(block))
