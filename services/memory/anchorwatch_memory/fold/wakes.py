"""Wake-ups and what happened to each: inputs, outcomes of commands, and orders. Each has one disposition."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from anchorwatch.core.anchor import Anchor
from anchorwatch.core.effect.state import Outcome
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session.ledger import DELETED, OVER
from anchorwatch.core.session.state import Input
from anchorwatch.core.session.wakes import dispositions
from anchorwatch.journal.mapping import read_input
from anchorwatch.journal.reading import Opened

from anchorwatch_memory.fold import items
from anchorwatch_memory.schema import insert

PENDING = "pending"
UNREADABLE_REASON = "its record cannot be read"
TAKEN_UNREAD_REASON = "the start of its turn cannot be read"


def accept(db: sqlite3.Connection, opened: Opened) -> None:
    """An input was accepted."""
    accepted = read_input(opened.register.path[1], opened.record, opened.stored)
    ref = opened.register.ref
    row = db.execute(
        "SELECT status FROM sessions WHERE workspace = ? AND session = ?", (ref.workspace, ref.session)
    ).fetchone()
    deleted = row is not None and row[0] == "deleted"
    insert(
        db,
        "inputs",
        sequence=accepted.sequence,
        workspace=ref.workspace,
        session=ref.session,
        input_id=accepted.input_id,
        kind=accepted.kind,
        priority=accepted.priority,
        accepted_at_ms=accepted.at_ms,
        expires_at_ms=accepted.expires_at_ms,
        source=accepted.source,
        type=accepted.type,
        text=accepted.text,
        who=str(opened.record.body.get("by") or opened.record.writer),
        disposition=accepted.settled or ("refused" if deleted else PENDING),
        reason=accepted.why or (DELETED if deleted else ""),
    )
    content = {"input_id": accepted.input_id, "kind": accepted.kind, "text": accepted.text}
    if accepted.source:
        content |= {"source": accepted.source, "event_type": accepted.type}
    if accepted.kind == "message":
        content["by"] = str(opened.record.body.get("by") or opened.record.writer)
        items.add(db, opened, [items.Item("message", "user", content)])
    else:
        items.add(db, opened, [items.Item("note", "system", content)])


def take(db: sqlite3.Connection, opened: Opened, anchor: Anchor) -> None:
    """A turn started: it takes the pending inputs up to the sequence that its acquire pinned."""
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
    """Messages joined a running turn at a step. ``where``: its run, id and step."""
    run_id, turn_id, step = where
    for sequence in sequences:
        key = (ref.workspace, ref.session, sequence)
        db.execute(
            "UPDATE inputs SET disposition = 'ran', run_id = ?, turn_id = ?, reason = ?"
            " WHERE workspace = ? AND session = ? AND sequence = ?",
            (run_id, turn_id, f"joined the running turn at step {step}", *key),
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
    """Pending inputs will not run, up to the sequence in the anchor."""
    db.execute(
        "UPDATE inputs SET disposition = ?, reason = ?"
        " WHERE workspace = ? AND session = ? AND disposition = 'pending' AND sequence <= ?",
        (disposition, reason, anchor.workspace, anchor.session, anchor.inputs_through),
    )


def refuse_rest(db: sqlite3.Connection, anchor: Anchor) -> None:
    """The session was deleted: pending inputs will not run."""
    db.execute(
        "UPDATE inputs SET disposition = 'refused', reason = ?"
        " WHERE workspace = ? AND session = ? AND disposition = 'pending'",
        (DELETED, anchor.workspace, anchor.session),
    )


def account(db: sqlite3.Connection, opened: Opened, anchor: Anchor) -> None:
    """A repair: unreadable inputs are refused, and the inputs of a turn whose start is unreadable ran in it."""
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


def ordered(db: sqlite3.Connection, opened: Opened, anchor: Anchor) -> None:
    """This record carried out an order."""
    ref = opened.register.ref
    run_id, turn_id = _running(db, ref)
    _insert(
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
    """A command has its outcome: a turn waits for it, or none does any longer."""
    run_id, turn_id = _running(db, opened.register.ref)
    is_awaited = run_id == done.call.run
    _insert(
        db,
        opened,
        kind="outcome",
        input_id=f"{opened.register.ref.session}/{done.call}",
        type=done.state,
        text=f"{done.tool} {done.state}",
        who=done.by or opened.record.writer,
        disposition=PENDING if is_awaited else "superseded",
        run_id=done.call.run,
        turn_id=turn_id if is_awaited else done.turn_id or None,
        reason="" if is_awaited else OVER,
    )


def settle(db: sqlite3.Connection, ref: SessionRef, run_id: int, *, over: bool = False) -> None:
    """The turn continued: the last outcome was its wake-up. ``over``: an order ended the turn instead."""
    where = (ref.workspace, ref.session, run_id)
    last = db.execute(
        "SELECT max(sequence) FROM outcomes_and_orders"
        " WHERE workspace = ? AND session = ? AND run_id = ? AND disposition = 'pending'",
        where,
    ).fetchone()[0]
    if last is None:
        return
    if not over:
        db.execute("UPDATE outcomes_and_orders SET disposition = 'ran' WHERE sequence = ?", (last,))
    db.execute(
        "UPDATE outcomes_and_orders SET disposition = ?, reason = ?"
        " WHERE workspace = ? AND session = ? AND run_id = ? AND disposition = 'pending'",
        ("superseded" if over else "coalesced", OVER if over else "", *where),
    )


def _running(db: sqlite3.Connection, ref: SessionRef) -> tuple[int | None, str | None]:
    row = db.execute(
        "SELECT run_id, turn_id, ended_at_ms FROM turns WHERE workspace = ? AND session = ? ORDER BY run_id DESC LIMIT 1",
        (ref.workspace, ref.session),
    ).fetchone()
    return (row[0], row[1]) if row is not None and row[2] is None else (None, None)


def _insert(db: sqlite3.Connection, opened: Opened, **fields: object) -> None:
    ref = opened.register.ref
    insert(
        db,
        "outcomes_and_orders",
        sequence=opened.stored.sequence,
        workspace=ref.workspace,
        session=ref.session,
        priority=0,
        accepted_at_ms=opened.record.at_ms,
        source="",
        **fields,
    )
