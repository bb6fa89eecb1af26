"""Inputs, seen as wakes: pending until a turn takes them, then with the one thing that became of each."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from anchorwatch.core.anchor import Anchor
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session.state import Input
from anchorwatch.core.session.wakes import dispositions
from anchorwatch.journal.mapping import read_input
from anchorwatch.journal.reading import Opened

from anchorwatch_memory.fold import items
from anchorwatch_memory.rows import insert

PENDING = "pending"
DELETED_REASON = "the session was deleted"
UNREADABLE_REASON = "its record cannot be read"
TAKEN_UNREAD_REASON = "the beginning of its turn cannot be read"


def accept(db: sqlite3.Connection, opened: Opened) -> None:
    """A receipt was given."""
    given = read_input(opened.register.path[1], opened.record, opened.stored)
    ref = opened.register.ref
    row = db.execute(
        "SELECT status FROM sessions WHERE workspace = ? AND session = ?", (ref.workspace, ref.session)
    ).fetchone()
    gone = row is not None and row[0] == "deleted"
    insert(
        db,
        "inputs",
        sequence=given.sequence,
        workspace=ref.workspace,
        session=ref.session,
        input_id=given.input_id,
        kind=given.kind,
        priority=given.priority,
        accepted_at_ms=given.at_ms,
        expires_at_ms=given.expires_at_ms,
        source=given.source,
        type=given.type,
        text=given.text,
        who=str(opened.record.body.get("by") or opened.record.writer),
        disposition=given.settled or ("refused" if gone else PENDING),
        reason=given.why or (DELETED_REASON if gone else ""),
    )
    content = {"input_id": given.input_id, "kind": given.kind, "text": given.text}
    if given.source:
        content |= {"source": given.source, "event_type": given.type}
    if given.kind == "message":
        items.add(db, opened, [items.Item("message", "user", content)])
    else:
        items.add(db, opened, [items.Item("note", "system", content)])


def take(db: sqlite3.Connection, opened: Opened, anchor: Anchor) -> None:
    """A turn began: it takes the pending inputs up to where its acquire says."""
    assert anchor.turn is not None  # noqa: S101 - of an acquire
    where = (anchor.workspace, anchor.session, anchor.turn.inputs_through)
    rows = db.execute(
        "SELECT sequence, input_id, kind, priority, accepted_at_ms, text, source, type, expires_at_ms"
        " FROM inputs WHERE workspace = ? AND session = ? AND disposition = 'pending' AND sequence <= ?"
        " ORDER BY sequence",
        where,
    ).fetchall()
    taken = [Input(*row) for row in rows]
    for wake, disposition in dispositions(taken, opened.record.at_ms):
        db.execute(
            "UPDATE inputs SET disposition = ?, run_id = ?, turn_id = ? WHERE sequence = ?",
            (disposition, anchor.run_id, anchor.turn.id, wake.sequence),
        )
        db.execute(
            "UPDATE items SET run_id = ?, turn_id = ? WHERE id = ?",
            (anchor.run_id, anchor.turn.id, items.item_id(wake.sequence, 0)),
        )
        db.execute(
            "UPDATE timeline SET run_id = ?, turn_id = ? WHERE sequence = ?",
            (anchor.run_id, anchor.turn.id, wake.sequence),
        )


def join(
    db: sqlite3.Connection,
    ref: SessionRef,
    where: tuple[int, str | None, int],
    sequences: Sequence[int],
) -> None:
    """What people said joined a running turn: ``where`` is its run, id and step."""
    run_id, turn_id, step = where
    for sequence in sequences:
        key = (ref.workspace, ref.session, sequence)
        db.execute(
            "UPDATE inputs SET disposition = 'ran', run_id = ?, turn_id = ?, reason = ?"
            " WHERE workspace = ? AND session = ? AND sequence = ?",
            (run_id, turn_id, f"it joined the running turn at step {step}", *key),
        )
        db.execute(
            "UPDATE items SET run_id = ?, turn_id = ? WHERE id = ?",
            (run_id, turn_id, items.item_id(sequence, 0)),
        )
        db.execute(
            "UPDATE timeline SET run_id = ?, turn_id = ? WHERE workspace = ? AND session = ? AND sequence = ?",
            (run_id, turn_id, *key),
        )


def dispose(db: sqlite3.Connection, anchor: Anchor, disposition: str, reason: str) -> None:
    """What waited will not run, as far as the anchor says."""
    db.execute(
        "UPDATE inputs SET disposition = ?, reason = ?"
        " WHERE workspace = ? AND session = ? AND disposition = 'pending' AND sequence <= ?",
        (disposition, reason, anchor.workspace, anchor.session, anchor.inputs_through),
    )


def refuse_rest(db: sqlite3.Connection, anchor: Anchor) -> None:
    """The session was deleted: what still waited will not run."""
    db.execute(
        "UPDATE inputs SET disposition = 'refused', reason = ?"
        " WHERE workspace = ? AND session = ? AND disposition = 'pending'",
        (DELETED_REASON, anchor.workspace, anchor.session),
    )


def account(db: sqlite3.Connection, opened: Opened, anchor: Anchor) -> None:
    """A repair: what cannot be read is refused, and what counts as taken by a turn that cannot be told of ran in it."""
    ref = opened.register.ref
    for sequence, register, _ in opened.record.body.get("means", ()):
        head, _, input_id = str(register).partition(".")
        if head != "in":
            continue
        insert(
            db,
            "inputs",
            sequence=sequence,
            workspace=ref.workspace,
            session=ref.session,
            input_id=input_id,
            kind="unreadable",
            priority=1,
            accepted_at_ms=opened.record.at_ms,
            expires_at_ms=None,
            source="",
            type="",
            text="",
            who="",
            disposition="refused",
            reason=UNREADABLE_REASON,
        )
    db.execute(
        "UPDATE inputs SET disposition = 'ran', run_id = ?, reason = ?"
        " WHERE workspace = ? AND session = ? AND disposition = 'pending' AND sequence <= ?",
        (anchor.last_run_id, TAKEN_UNREAD_REASON, ref.workspace, ref.session, anchor.inputs_through),
    )
