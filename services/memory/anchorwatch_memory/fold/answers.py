"""Wakes that are no inputs: what running a command came to, and what people ordered. Each has one disposition, as inputs have."""

from __future__ import annotations

import sqlite3

from anchorwatch.core.anchor import Anchor
from anchorwatch.core.effect.state import Outcome
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session.ledger import OVER
from anchorwatch.journal.reading import Opened

from anchorwatch_memory.rows import insert

PENDING = "pending"


def ordered(db: sqlite3.Connection, opened: Opened, anchor: Anchor) -> None:
    """A person's order was carried out, by this record."""
    ref = opened.register.ref
    run_id, turn_id = _running(db, ref)
    _enter(
        db,
        opened,
        kind="control",
        input_id=str(opened.record.body.get("control", "")),
        type=opened.record.kind,
        text=str(opened.record.body.get("reason") or opened.record.body.get("text", "")),
        who=str(opened.record.body.get("by") or opened.record.writer),
        disposition="ran",
        run_id=run_id or (anchor.run_id if anchor.turn else None),
        turn_id=turn_id or (anchor.turn.id if anchor.turn else None),
        reason="",
    )


def outcome(db: sqlite3.Connection, opened: Opened, done: Outcome) -> None:
    """A command has its outcome: the turn that waits for it goes on, or nobody waits for it any more."""
    run_id, turn_id = _running(db, opened.register.ref)
    waited_for = run_id == done.call.run
    _enter(
        db,
        opened,
        kind="outcome",
        input_id=f"{opened.register.ref.session}/{done.call}",
        type=done.state,
        text=f"{done.tool} {done.state}",
        who=done.by or opened.record.writer,
        disposition=PENDING if waited_for else "superseded",
        run_id=done.call.run,
        turn_id=turn_id if waited_for else done.turn_id or None,
        reason="" if waited_for else OVER,
    )


def settle(db: sqlite3.Connection, ref: SessionRef, run_id: int, *, over: bool = False) -> None:
    """The turn went on: the last outcome so far was the one that let it. ``over``: an order ended it."""
    where = (ref.workspace, ref.session, run_id)
    last = db.execute(
        "SELECT max(sequence) FROM answers WHERE workspace = ? AND session = ? AND run_id = ? AND disposition = 'pending'",
        where,
    ).fetchone()[0]
    if last is None:
        return
    if not over:
        db.execute("UPDATE answers SET disposition = 'ran' WHERE sequence = ?", (last,))
    db.execute(
        "UPDATE answers SET disposition = ?, reason = ?"
        " WHERE workspace = ? AND session = ? AND run_id = ? AND disposition = 'pending'",
        ("superseded" if over else "coalesced", OVER if over else "", *where),
    )


def _running(db: sqlite3.Connection, ref: SessionRef) -> tuple[int | None, str | None]:
    row = db.execute(
        "SELECT run_id, turn_id, ended_at_ms FROM turns WHERE workspace = ? AND session = ? ORDER BY run_id DESC LIMIT 1",
        (ref.workspace, ref.session),
    ).fetchone()
    return (row[0], row[1]) if row is not None and row[2] is None else (None, None)


def _enter(db: sqlite3.Connection, opened: Opened, **fields: object) -> None:
    ref = opened.register.ref
    insert(
        db,
        "answers",
        sequence=opened.stored.sequence,
        workspace=ref.workspace,
        session=ref.session,
        priority=0,
        accepted_at_ms=opened.record.at_ms,
        source="",
        **fields,
    )
