"""Durable memory: made of the outcomes of `remember` and `forget`, which are their only records."""

from __future__ import annotations

import sqlite3

from anchorwatch.core.effect.state import Outcome
from anchorwatch.journal.reading import Opened

from anchorwatch_memory.rows import insert

POOL = "memory"
REMEMBER, FORGET = "remember", "forget"


def settle(db: sqlite3.Connection, opened: Opened, outcome: Outcome) -> None:
    """Enter what an outcome of the pool `memory` says was remembered or withdrawn."""
    if outcome.state not in ("succeeded", "resolved"):
        return
    if outcome.tool == REMEMBER and "memory" in outcome.data:
        _remember(db, opened, outcome)
    elif outcome.tool == FORGET and "forgotten" in outcome.data:
        _forget(db, opened, outcome)


def _remember(db: sqlite3.Connection, opened: Opened, outcome: Outcome) -> None:
    ref, memory = opened.register.ref, outcome.data["memory"]
    withdrawn = db.execute(
        "SELECT 1 FROM withdrawals WHERE workspace = ? AND memory_id = ?", (ref.workspace, memory["id"])
    ).fetchone()
    if withdrawn is None:
        insert(
            db,
            "memories",
            sequence=opened.stored.sequence,
            workspace=ref.workspace,
            memory_id=memory["id"],
            session=ref.session,
            call=f"{ref.session}/{outcome.call}",
            topic=memory.get("topic", ""),
            text=memory["text"],
            at_ms=opened.record.at_ms,
        )


def _forget(db: sqlite3.Connection, opened: Opened, outcome: Outcome) -> None:
    ref, memory_id = opened.register.ref, outcome.data["forgotten"]["id"]
    db.execute("DELETE FROM memories WHERE workspace = ? AND memory_id = ?", (ref.workspace, memory_id))
    insert(
        db,
        "withdrawals",
        workspace=ref.workspace,
        memory_id=memory_id,
        session=ref.session,
        call=f"{ref.session}/{outcome.call}",
        sequence=opened.stored.sequence,
    )
