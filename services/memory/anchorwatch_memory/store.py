"""The file of projections: written in batches, read in snapshots. Synchronous; `projections` runs it in threads."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from anchorwatch.bus.port import Stored

from anchorwatch_memory import schema
from anchorwatch_memory.fold import fold

BUSY_S = 10.0
MEMORY = ":memory:"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Position:
    """The last journal message in the projections. ``faulty``: `fold` kept out a message before it."""

    sequence: int
    subject: str
    time_ms: int
    faulty: bool = field(default=False, compare=False)


START = Position(0, "", 0)


class Store:
    """One connection to the file. A file that is damaged or has another schema is replaced: the journal has everything."""

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self._db = _open(path)

    def position(self) -> Position:
        """The last message in the file."""
        row = self._db.execute("SELECT sequence, subject, time_ms FROM progress").fetchone()
        return Position(*row)

    def project(self, messages: Iterable[Stored]) -> Position:
        """Enter messages after the position, in order, in one transaction with the new position."""
        with _transaction(self._db, "IMMEDIATE"):
            position, faulty = self.position(), False
            for stored in messages:
                if stored.sequence <= position.sequence:
                    continue
                faulty |= not fold(self._db, stored)
                position = Position(stored.sequence, stored.subject, stored.time_ms)
            self._db.execute(
                "UPDATE progress SET sequence = ?, subject = ?, time_ms = ?",
                (position.sequence, position.subject, position.time_ms),
            )
        return replace(position, faulty=faulty)

    def read(self, query: Callable[[sqlite3.Connection], T]) -> tuple[T, int]:
        """The query's answer, and the sequence up to which it is complete; one snapshot for both."""
        with _transaction(self._db, "DEFERRED"):
            position = self.position()
            return query(self._db), position.sequence

    def reset(self, aside: str = "") -> None:
        """Empty the file. With ``aside``, keep the old one under its name with this ending."""
        self.close()
        if aside and self.path != MEMORY:
            Path(self.path).replace(f"{self.path}.{aside}")
        _remove(self.path)
        self._db = _open(self.path)

    def dump(self) -> dict[str, Sequence[tuple[object, ...]]]:
        """Every row of every table, in order. Two files with the same content have equal dumps."""
        names = self._db.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'memories_words%'"
            " AND name NOT LIKE 'sqlite_%' ORDER BY name"
        ).fetchall()
        return {
            name: self._db.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall()  # noqa: S608 - our own tables
            for (name,) in names
        }

    def close(self) -> None:
        self._db.close()


class _transaction:  # noqa: N801 - reads as a word of the language
    """BEGIN … COMMIT, or ROLLBACK when something is raised."""

    def __init__(self, db: sqlite3.Connection, mode: str) -> None:
        self._db = db
        self._mode = mode

    def __enter__(self) -> None:
        self._db.execute(f"BEGIN {self._mode}")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._db.execute("COMMIT" if kind is None else "ROLLBACK")


def _open(path: Path | str) -> sqlite3.Connection:
    try:
        return _connect(path)
    except sqlite3.DatabaseError as error:
        # A locked file or a full disk: a new file would not help.
        if isinstance(error, sqlite3.OperationalError):
            raise
        _remove(path)
        return _connect(path)


def _connect(path: Path | str) -> sqlite3.Connection:
    if path != MEMORY:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # One thread at a time uses it, but not always the same.
    db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, schema.VERSION):
            raise sqlite3.DatabaseError(f"it has schema {version}")
        if version == 0:
            _create(db)
    except BaseException:
        db.close()
        raise
    return db


def _create(db: sqlite3.Connection) -> None:
    db.execute("BEGIN IMMEDIATE")
    if db.execute("PRAGMA user_version").fetchone()[0] == 0:
        for statement in schema.statements():
            db.execute(statement)
        if has_word_search(db):
            for statement in schema.SEARCH:
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {schema.VERSION}")
    db.execute("COMMIT")


def has_word_search(db: sqlite3.Connection) -> bool:
    """Whether this SQLite has full-text search."""
    return bool(db.execute("SELECT sqlite_compileoption_used('ENABLE_FTS5')").fetchone()[0])


def _remove(path: Path | str) -> None:
    if path == MEMORY:
        return
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
