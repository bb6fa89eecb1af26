"""Small helpers for rows."""

from __future__ import annotations

import json
import sqlite3
from functools import cache
from typing import Any

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=repr)


def as_json(value: Any) -> str:  # noqa: ANN401 - any plain data
    """Plain data as JSON text; what JSON has no form for (bytes) becomes text."""
    return _ENCODER.encode(value)


def insert(db: sqlite3.Connection, table: str, **values: Any) -> None:  # noqa: ANN401 - column values
    """Add a row; one that stands under the same key stays as it is."""
    db.execute(_insert_sql(table, tuple(values)), tuple(values.values()))


@cache
def _insert_sql(table: str, columns: tuple[str, ...]) -> str:
    # Table and columns are named in this code, never by a client.
    marks = ", ".join("?" for _ in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) ON CONFLICT DO NOTHING"  # noqa: S608
