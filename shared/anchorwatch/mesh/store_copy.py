"""The files of what nothing else could bring back, as they were before their server started: it takes away what it cannot read.

Of a stream one block of which it cannot read, a NATS server that was killed before removes all files when it starts; in the
newest block it cuts off what stands behind the damage (measured: 2.15.1). So what there was is kept until it is seen
what the server has left of it: a full block by another name for the same file, which costs nothing, the newest by a copy.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog

from anchorwatch.bus.port import Bus, StreamMissing
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.journal.truncation import Proof, hold_mesh
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.store_tail import Tail, read_tail
from anchorwatch.service.made import KEPT
from anchorwatch.topology.streams import journal_stream

_FULL = b"cmp"
"""How a block begins that is full, and that the server therefore replaces, and never writes into."""
_STARTING = "starting"
_AGAIN_S = 0.5
WRITER = "supervisor"


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

    def tail(self, stream: str) -> Tail:
        """The newest block of the stream as it was before this start, or before any whose copy is kept: whichever ended highest.

        Raises:
            OSError: it could not be read.
        """
        found = [Tail()]
        for copy in self.aside.glob(f"*/jetstream/*/streams/{stream}/msgs"):
            newest = max(copy.glob("*.blk"), key=lambda block: int(block.stem), default=None)
            if newest is not None and not _is_full(newest):
                found.append(read_tail(newest.read_bytes()))
        return max(found, key=lambda tail: tail.end)

    def compare(self, lost: Collection[str] = ()) -> str:
        """Once the server serves: what it has taken away, and where that is kept; empty: nothing. ``lost``: streams whose end is.

        Raises:
            OSError: it could not be looked at.
        """
        kept = self.aside / _STARTING
        less = sorted(
            str(copy.relative_to(kept))
            for copy in kept.rglob("*.blk")
            if copy.parent.parent.name in lost or _is_less(self.store / copy.relative_to(kept), copy)
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
    """Takes the copy before each start of the server, and compares it once the server serves: before anything else may start.

    Where the journal ends lower than the copy does, the mesh is held (`truncation`) and the copy is kept.
    """

    def __init__(
        self,
        data: DataDir,
        connect: Callable[[], Awaitable[Bus]],
        log: structlog.stdlib.BoundLogger,
        say: Callable[[str], None],
    ) -> None:
        self._copy = StoreCopy(data.nats_store, data.nats_aside)
        self._connect = connect
        self._log = log
        self._say = say

    def before(self) -> None:
        """The server is about to be started."""
        self._tell(self._copy.take)

    async def behind(self) -> None:
        """It has become ready."""
        lost = [stream for stream in (journal_stream(),) if await self._check_end(stream)]
        self._tell(lambda: self._copy.compare(lost))

    async def _check_end(self, stream: str) -> bool:
        """Whether the stream ended higher before; then the mesh is held. Tried until it is known."""
        try:
            tail = self._copy.tail(stream)
        except OSError as error:
            self._log.error("the copy of the journal cannot be read", reason=str(error))
            return False
        while tail.records or not tail.whole:
            try:
                return await self._compare_end(stream, tail)
            except StreamMissing:
                # No service goes on without it (`made`).
                return False
            except AnchorWatchError as error:
                self._log.error("the end of the journal cannot be checked", reason=str(error))
                await asyncio.sleep(_AGAIN_S)
        return False

    async def _compare_end(self, stream: str, tail: Tail) -> bool:
        bus = await self._connect()
        try:
            last = (await bus.stream_state(stream)).last_sequence
            # What is no record at the end of the file may have been some: then nobody knows here how many.
            proof = Proof(tail.end, WRITER, tail.lost_after(last), open_end=not tail.whole)
            gap = await hold_mesh(bus, stream, proof, WRITER)
        finally:
            await bus.close()
        if gap is None:
            return False
        self._log.error("the journal lost its end; the mesh is held", first=gap.first, through=gap.through)
        self._say(
            f"the journal lost the records {gap.first} to {gap.through}: nothing starts until that is accepted:"
            " `anchorwatch journal accept`"
        )
        return True

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
    lets_go = block.parent.parent.name != journal_stream() and any(block.parent.glob("*.blk"))
    try:
        smaller = block.stat().st_size < copy.stat().st_size
    except FileNotFoundError:
        return copy.stat().st_size > 0 and not lets_go
    return smaller and (not lets_go if _is_full(copy) else not _is_full(block))
