"""The projections as the service uses them, in two forms: in threads, or in the caller's thread (for simulations)."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

from anchorwatch.bus.port import Stored
from anchorwatch.core.errors import Damaged

from anchorwatch_memory.store import MEMORY, Position, Store

T = TypeVar("T")
Query = Callable[[sqlite3.Connection], T]


class ProjectionsDamaged(Damaged):
    """The file of projections is damaged, and has to be rebuilt."""

    code = "projections_damaged"


class Projections(Protocol):
    """A file of projections. Reads and writes raise `ProjectionsDamaged` if the file is damaged."""

    async def position(self) -> Position: ...
    async def project(self, messages: Sequence[Stored]) -> Position:
        """Enter messages after the position, all in one transaction; returns the new position."""
        ...

    async def read(self, query: Query[T]) -> tuple[T, int]:
        """The query's answer, and the sequence up to which it is complete."""
        ...

    async def reset(self, aside: str = "") -> None:
        """Empty the projections; with ``aside``, keep the old file under its name with this ending."""
        ...

    async def close(self) -> None: ...


@contextlib.contextmanager
def reporting_damage() -> Iterator[None]:
    """Raise SQLite's damage error as `ProjectionsDamaged`. Its subclasses (disk full, locked) pass: a rebuild would not help."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if type(error) is sqlite3.DatabaseError:
            raise ProjectionsDamaged(f"the projections cannot be read: {error}") from None
        raise


class InlineProjections:
    """Runs in the caller's thread."""

    def __init__(self, path: Path | str = MEMORY) -> None:
        self.store = Store(path)

    async def position(self) -> Position:
        with reporting_damage():
            return self.store.position()

    async def project(self, messages: Sequence[Stored]) -> Position:
        with reporting_damage():
            return self.store.project(messages)

    async def read(self, query: Query[T]) -> tuple[T, int]:
        with reporting_damage():
            return self.store.read(query)

    async def reset(self, aside: str = "") -> None:
        self.store.reset(aside)

    async def close(self) -> None:
        self.store.close()


class ThreadedProjections:
    """One thread writes and one reads, each with its own connection: neither blocks the other, or the event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="projections-write")
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="projections-read")
        self._writer = Store(path)
        self._reader = Store(path)

    async def position(self) -> Position:
        with reporting_damage():
            return await self._run(self._writing, self._writer.position)

    async def project(self, messages: Sequence[Stored]) -> Position:
        with reporting_damage():
            return await self._run(self._writing, lambda: self._writer.project(messages))

    async def read(self, query: Query[T]) -> tuple[T, int]:
        with reporting_damage():
            return await self._run(self._reading, lambda: self._reader.read(query))

    async def reset(self, aside: str = "") -> None:
        # Both connections must leave the file before it is replaced: first the reader's.
        await self._run(self._reading, self._reader.close)
        await self._run(self._writing, lambda: self._writer.reset(aside))
        self._reader = await self._run(self._reading, lambda: Store(self._path))

    async def close(self) -> None:
        await self._run(self._reading, self._reader.close)
        await self._run(self._writing, self._writer.close)
        self._reading.shutdown()
        self._writing.shutdown()

    @staticmethod
    async def _run(executor: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(executor, work)
