"""Lists in pages, bounded in rows and bytes. A cursor is a place in the order of a list."""

from __future__ import annotations

import base64
import binascii
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from anchorwatch.core.errors import BadInput

LIMIT_MAX = 200
PAGE_BYTES_MAX = 512 * 1024
CLIPS_CHARS = (16_384, 2_048, 256, 32)
"""An entry above the size of a page has its texts cut to these lengths in turn, until it fits."""

Row = sqlite3.Row


@dataclass(frozen=True, slots=True)
class Window:
    """The requested part of a list."""

    limit: int = 50
    order: Literal["asc", "desc"] = "asc"
    cursor: str | None = None


@dataclass(frozen=True)
class Listing:
    """A list: its table, the column that orders it, and the form of its rows."""

    name: str
    table: str
    key: str
    show: Callable[[Row], dict[str, Any]]
    columns: str = "*"


@dataclass(frozen=True)
class Where:
    """Conditions that all hold; None sets no condition."""

    values: Mapping[str, object] = field(default_factory=dict)

    def sql(self, extra: str = "") -> tuple[str, list[object]]:
        """The WHERE clause and its arguments. Column names come from this code."""
        equal = {name: value for name, value in self.values.items() if value is not None}
        parts = [f"{name} = ?" for name in equal] + ([extra] if extra else [])
        return (" WHERE " + " AND ".join(parts) if parts else ""), list(equal.values())


def read_window(params: Mapping[str, Any]) -> Window:
    """The window in a request's parameters.

    Raises:
        BadInput: the limit, the order or the cursor is invalid.
    """
    limit, order, cursor = params.get("limit", 50), params.get("order", "asc"), params.get("cursor")
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= LIMIT_MAX:
        raise BadInput(f"limit must be a whole number from 1 to {LIMIT_MAX}")
    if order not in ("asc", "desc"):
        raise BadInput("order must be asc or desc")
    if cursor is not None and not isinstance(cursor, str):
        raise BadInput("the cursor must be text")
    return Window(limit, order, cursor)


def page(db: sqlite3.Connection, listing: Listing, where: Where, window: Window) -> dict[str, Any]:
    """One page, ``{data, next}``.

    Raises:
        BadInput: the cursor is not from this list.
    """
    after = _read_cursor(listing, window)
    compare = ">" if window.order == "asc" else "<"
    clause, arguments = where.sql(f"{listing.key} {compare} ?" if after is not None else "")
    if after is not None:
        arguments.append(after)
    # All names in it come from this code.
    sql = (
        f"SELECT {listing.columns} FROM {listing.table}{clause} ORDER BY {listing.key} {window.order} LIMIT ?"  # noqa: S608
    )
    rows = select(db, sql, [*arguments, window.limit + 1])
    data: list[dict[str, Any]] = []
    size = 0
    for row in rows[: window.limit]:
        entry, entry_bytes = fit(listing.show(row))
        if data and size + entry_bytes > PAGE_BYTES_MAX:
            break
        data.append(entry)
        size += entry_bytes
    more = len(data) < len(rows)
    last = rows[len(data) - 1][listing.key] if more else None
    return {"data": data, "next": _cursor(listing, window, last) if more else None}


def select(db: sqlite3.Connection, sql: str, arguments: Sequence[object]) -> list[Row]:
    """Rows with named columns."""
    cursor = db.cursor()
    cursor.row_factory = sqlite3.Row
    return cursor.execute(sql, arguments).fetchall()


def fit(entry: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The entry, cut to fit a page, and its size in bytes; ``clipped`` says that texts were cut."""
    size = _size(entry)
    for chars_max in CLIPS_CHARS:
        if size <= PAGE_BYTES_MAX:
            break
        entry = {**_clip(entry, chars_max), "clipped": True}
        size = _size(entry)
    return entry, size


def _size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def _clip(value: Any, chars_max: int) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return value if len(value) <= chars_max else value[:chars_max] + "…"
    if isinstance(value, dict):
        return {name: _clip(each, chars_max) for name, each in value.items()}
    if isinstance(value, list):
        return [_clip(each, chars_max) for each in value]
    return value


def _cursor(listing: Listing, window: Window, key: object) -> str:
    text = json.dumps([listing.name, window.order, key], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_cursor(listing: Listing, window: Window) -> int | str | None:
    if window.cursor is None:
        return None
    try:
        padded = window.cursor + "=" * (-len(window.cursor) % 4)
        name, order, key = json.loads(base64.urlsafe_b64decode(padded.encode()))
    except (binascii.Error, ValueError, TypeError):
        name = order = key = None
    fits = isinstance(key, str) or (isinstance(key, int) and abs(key) < 2**63)
    if name != listing.name or order != window.order or not fits:
        raise BadInput(
            "the cursor is not from this list",
            hint="use `next` of the previous page, unchanged, in the same order",
        )
    return key  # type: ignore[no-any-return]  # checked
