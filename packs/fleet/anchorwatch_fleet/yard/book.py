"""The yard's database: instances and effect keys. Each write is on disk before the call returns."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from anchorwatch_fleet.instances import Instance, instance_from_json

ENDED_KEPT_MAX = 200
BUSY_TIMEOUT_S = 5.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS instances (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT UNIQUE,
    live INTEGER NOT NULL,
    since_ms INTEGER NOT NULL,
    body TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS effects (
    key TEXT PRIMARY KEY,
    verb TEXT NOT NULL,
    args TEXT NOT NULL,
    state TEXT NOT NULL,
    targets TEXT NOT NULL,
    result TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of an effect key.

    ``targets``: the (instance, epoch) pairs to start or stop, decided in advance. ``state`` is ``intended`` until
    everything is done.
    """

    key: str
    verb: str
    args: Mapping[str, Any]
    state: Literal["intended", "done"] = "intended"
    targets: tuple[tuple[str, int], ...] = ()
    result: Mapping[str, Any] = field(default_factory=dict)

    def done(self, result: Mapping[str, Any]) -> Effect:
        return replace(self, state="done", result=result)


class Book:
    """A SQLite file that one yard opens at a time."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        self._db.close()

    def instances(self) -> list[Instance]:
        """All stored instances, oldest first."""
        rows = self._db.execute("SELECT body FROM instances ORDER BY number").fetchall()
        return [instance_from_json(json.loads(body)) for (body,) in rows]

    def keep(self, *instances: Instance) -> None:
        """Write instances, all or none, and delete the oldest ended ones beyond the limit."""
        with _transaction(self._db):
            for each in instances:
                self._db.execute(
                    "INSERT INTO instances (id, live, since_ms, body) VALUES (?, ?, ?, ?) "
                    "ON CONFLICT (id) DO UPDATE SET live = excluded.live, since_ms = excluded.since_ms, body = excluded.body",
                    (each.id, each.live, each.since_ms, json.dumps(each.to_json())),
                )
            self._db.execute(
                "DELETE FROM instances WHERE NOT live AND number NOT IN "
                "(SELECT number FROM instances WHERE NOT live ORDER BY since_ms DESC, number DESC LIMIT ?)",
                (ENDED_KEPT_MAX,),
            )

    def new_ids(self, count: int) -> list[str]:
        """New instance ids."""
        row = self._db.execute(
            "INSERT INTO counters VALUES ('instance', ?) ON CONFLICT (name) DO UPDATE SET value = value + ? RETURNING value",
            (count, count),
        ).fetchone()
        last = int(row[0])
        return [f"w-{number}" for number in range(last - count + 1, last + 1)]

    def effect(self, key: str) -> Effect | None:
        row = self._db.execute(
            "SELECT key, verb, args, state, targets, result FROM effects WHERE key = ?", (key,)
        ).fetchone()
        return None if row is None else _effect(row)

    def intended(self) -> list[Effect]:
        """Effects that started and have no recorded end."""
        rows = self._db.execute(
            "SELECT key, verb, args, state, targets, result FROM effects WHERE state = 'intended'"
        ).fetchall()
        return [_effect(row) for row in rows]

    def note(self, effect: Effect) -> None:
        """Write an effect; it replaces the one of the same key."""
        self._db.execute(
            "INSERT OR REPLACE INTO effects VALUES (?, ?, ?, ?, ?, ?)",
            (
                effect.key,
                effect.verb,
                json.dumps(effect.args, sort_keys=True),
                effect.state,
                json.dumps(effect.targets),
                json.dumps(effect.result),
            ),
        )


class _transaction:  # noqa: N801 - reads as a word in `with`
    """BEGIN … COMMIT, or ROLLBACK if the block raises."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_: object) -> None:
        self._db.execute("COMMIT" if kind is None else "ROLLBACK")


def _effect(row: Sequence[str]) -> Effect:
    key, verb, args, state, targets, result = row
    return Effect(
        key=key,
        verb=verb,
        args=json.loads(args),
        state="done" if state == "done" else "intended",
        targets=tuple((str(instance), int(epoch)) for instance, epoch in json.loads(targets)),
        result=json.loads(result),
    )
