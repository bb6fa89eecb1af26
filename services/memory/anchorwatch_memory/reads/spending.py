"""What model calls used, as clients see it: tokens, and money where prices were set."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from anchorwatch.core.session.spending import COST, MICROS

from anchorwatch_memory.reads.pages import Row, select

DAYS_MAX = 31
_SUMS = "sum(calls) AS calls, sum(prompt) AS prompt, sum(completion) AS completion, sum(micros) AS micros"


def usage(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded usage, with its ``cost`` in the unit of the prices."""
    shown = {name: value for name, value in recorded.items() if name != COST}
    return {**shown, "cost": recorded[COST] / MICROS} if COST in recorded else shown


def of_session(db: sqlite3.Connection, workspace: str, session: str) -> dict[str, Any]:
    """In all, and for each of its last days (of UTC) with a call, the newest first."""
    key = (workspace, session)
    (ever,) = select(db, f"SELECT {_SUMS} FROM spending WHERE workspace = ? AND session = ?", key)  # noqa: S608 - of our own
    days = select(
        db,
        "SELECT * FROM spending WHERE workspace = ? AND session = ? ORDER BY day DESC LIMIT ?",
        (*key, DAYS_MAX),
    )
    return {"ever": _shown(ever), "days": [{"day": _date(row["day"]), **_shown(row)} for row in days]}


def of_all(db: sqlite3.Connection) -> dict[str, Any]:
    """Of all sessions together, since the first."""
    (ever,) = select(db, f"SELECT {_SUMS} FROM spending", ())  # noqa: S608 - of our own
    return _shown(ever)


def _shown(row: Row) -> dict[str, Any]:
    counts = {name: row[name] or 0 for name in ("calls", "prompt", "completion")}
    return {**counts, "cost": (row["micros"] or 0) / MICROS}


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * 86_400, UTC).date().isoformat()
