"""Copies of the store's irreplaceable streams from before each server start, since a start can remove damaged data.

A NATS server that was killed removes every file of a stream if it cannot read one of its full blocks; it cuts the newest
block off at the damage (measured: 2.15.1). The supervisor therefore keeps the files until it has compared them with the
files that the server left: a full block by a hard link, which costs nothing, and the newest block by a copy (INV-908).
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
from anchorwatch.service.provisioning import IRREPLACEABLE_STREAMS
from anchorwatch.topology.streams import journal_stream

_FULL = b"cmp"
"""The first bytes of a full block, which the server may replace but never modifies."""
_STARTING = "starting"
_RETRY_S = 0.5
WRITER = "supervisor"


@dataclass(frozen=True, slots=True)
class StoreCopy:
    """``store``: the server's directory. ``aside``: the directory for the copies, on the same file system."""

    store: Path
    aside: Path

    def take(self) -> str:
        """Copy the files before the server starts; first report as `compare` if an earlier start was never compared.

        Raises:
            OSError: a file could not be copied.
        """
        report = self.compare()
        for source in self._files():
            copy = self.aside / _STARTING / source.relative_to(self.store)
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if source.suffix == ".blk" and _is_full(source):
                os.link(source, copy)
            else:
                shutil.copy2(source, copy)
        return report

    def tail(self, stream: str) -> Tail:
        """The newest block of the stream from before this start, or from an older copy that ends higher.

        Raises:
            OSError: a copy cannot be read.
        """
        tails = [Tail()]
        for copy in self.aside.glob(f"*/jetstream/*/streams/{stream}/msgs"):
            newest = max(copy.glob("*.blk"), key=lambda block: int(block.stem), default=None)
            if newest is not None and not _is_full(newest):
                tails.append(read_tail(newest.read_bytes()))
        return max(tails, key=lambda tail: tail.end)

    def compare(self, lost: Collection[str] = ()) -> str:
        """Report the data that the server removed and where its copy is; empty if it removed none.

        Call it once the server is ready. ``lost`` names the streams that are known to have lost their end.

        Raises:
            OSError: the files could not be compared.
        """
        copies = self.aside / _STARTING
        cut = sorted(
            str(copy.relative_to(copies))
            for copy in copies.rglob("*.blk")
            if copy.parent.parent.name in lost or _lost_data(self.store / copy.relative_to(copies), copy)
        )
        if not cut:
            shutil.rmtree(copies, ignore_errors=True)
            return ""
        place = self.aside / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}"
        copies.rename(place)
        return (
            f"the server could not read its whole store when it started, and removed data of {', '.join(cut)};"
            f" the files from before the start are in {place} (docs/protocol.md, Damage)"
        )

    def _files(self) -> Iterator[Path]:
        for name in IRREPLACEABLE_STREAMS:
            for stream in self.store.glob(f"jetstream/*/streams/{name}"):
                yield from (path for path in stream.rglob("*") if path.is_file())


class StoreGuard:
    """Copies the store before each server start, and compares it once the server is ready, before any service starts.

    If the journal ends lower than its copy, the guard holds the mesh (`truncation`) and keeps the copy.
    """

    def __init__(
        self,
        data: DataDir,
        connect: Callable[[], Awaitable[Bus]],
        log: structlog.stdlib.BoundLogger,
        note: Callable[[str], None],
    ) -> None:
        self._copy = StoreCopy(data.nats_store, data.nats_aside)
        self._connect = connect
        self._log = log
        self._note = note

    def before_start(self) -> None:
        self._report(self._copy.take)

    async def after_start(self) -> None:
        lost = [stream for stream in (journal_stream(),) if await self._check_end(stream)]
        self._report(lambda: self._copy.compare(lost))

    async def _check_end(self, stream: str) -> bool:
        """Whether the stream ended higher before, in which case the mesh is now held. Retried until it is known."""
        try:
            tail = self._copy.tail(stream)
        except OSError as error:
            self._log.error("journal_copy.read_failed", reason=str(error))
            return False
        while tail.records or not tail.whole:
            try:
                return await self._compare_end(stream, tail)
            except StreamMissing:
                # No service continues without the stream (`made`).
                return False
            except AnchorWatchError as error:
                self._log.error("journal_end.check_failed", reason=str(error))
                await asyncio.sleep(_RETRY_S)
        return False

    async def _compare_end(self, stream: str, tail: Tail) -> bool:
        bus = await self._connect()
        try:
            last = (await bus.stream_state(stream)).last_sequence
            # Unreadable bytes at the end of the file may have been records: their number is unknown here.
            proof = Proof(tail.end, WRITER, tail.lost_after(last), open_end=not tail.whole)
            gap = await hold_mesh(bus, stream, proof, WRITER)
        finally:
            await bus.close()
        if gap is None:
            return False
        self._log.error("journal_end.lost", first=gap.first, through=gap.through)
        self._note(
            f"the journal lost the records {gap.first} to {gap.through}: no turn or command starts until you accept"
            " the loss with `anchorwatch journal accept`"
        )
        return True

    def _report(self, check: Callable[[], str]) -> None:
        try:
            report = check()
        except OSError as error:
            self._log.error("store_copy.failed", reason=str(error))
            return
        if report:
            self._log.error("store.data_removed", reason=report)
            self._note(report)


def _is_full(block: Path) -> bool:
    with block.open("rb") as file:
        return file.read(len(_FULL)) == _FULL


def _lost_data(block: Path, copy: Path) -> bool:
    """Whether the block lost data. A block that has become full since is smaller and has the same content.

    Streams other than the journal drop old blocks by age, unless no block is left.
    """
    expires = block.parent.parent.name != journal_stream() and any(block.parent.glob("*.blk"))
    try:
        smaller = block.stat().st_size < copy.stat().st_size
    except FileNotFoundError:
        return copy.stat().st_size > 0 and not expires
    return smaller and (not expires if _is_full(copy) else not _is_full(block))
