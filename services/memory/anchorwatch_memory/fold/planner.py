"""The planner's records. Anchors make the rows of sessions and turns; steps and commands are in `steps`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import Damaged
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session.ledger import CLEARED
from anchorwatch.core.session.transitions import CONTROLS, ENDS_TURN
from anchorwatch.core.times import iso
from anchorwatch.journal.mapping import read_head
from anchorwatch.journal.reading import Opened

from anchorwatch_memory.fold import items, steps, wakes
from anchorwatch_memory.schema import as_json, insert

UNREADABLE = "?"
_STATUS_OF_OUTCOME = {"failed": "failed", "over_budget": "failed", "cancelled": "cancelled"}


def follows(db: sqlite3.Connection, opened: Opened) -> bool:
    """Whether the record follows the planner record before it. The chain continues from it in any case."""
    ref, record = opened.register.ref, opened.record
    row = db.execute(
        "SELECT digest FROM chains WHERE workspace = ? AND session = ?", (ref.workspace, ref.session)
    ).fetchone()
    _link(db, ref, opened.stored.sequence, record.digest)
    return row == (UNREADABLE,) or (row[0] if row else "") == record.previous


def anchor_before(db: sqlite3.Connection, opened: Opened) -> Mapping[str, Any] | None:
    """The anchor before an order, as JSON; None for other records, and where no anchor is known."""
    if opened.record.kind not in CONTROLS:
        return None
    ref = opened.register.ref
    row = db.execute(
        "SELECT anchor FROM sessions WHERE workspace = ? AND session = ?", (ref.workspace, ref.session)
    ).fetchone()
    before: Mapping[str, Any] | None = json.loads(row[0]) if row else None
    return before


def break_chain(db: sqlite3.Connection, ref: SessionRef, sequence: int) -> None:
    """Let the chain continue after a planner record that cannot be read: the next one need not follow it."""
    _link(db, ref, sequence, UNREADABLE)


def _link(db: sqlite3.Connection, ref: SessionRef, sequence: int, digest: str) -> None:
    db.execute(
        "INSERT OR REPLACE INTO chains VALUES (?, ?, ?, ?)", (ref.workspace, ref.session, sequence, digest)
    )


def enter(db: sqlite3.Connection, opened: Opened) -> None:
    """Enter a record of the planner's chain."""
    match opened.register.kind:
        case "p.anchor":
            assert opened.anchor is not None  # noqa: S101 - this register has one
            _anchor(db, opened, opened.anchor)
        case "p.cmd":
            steps.command(db, opened)
        case _ if opened.record.kind == Kind.STEP:
            body = opened.record.body
            steps.step(db, opened, body["run"], read_head(body["step"]))
        case _ if opened.record.kind == Kind.COMPACTION:
            _spend(db, opened)
        case _ if opened.record.kind == Kind.MODEL_REQUEST:
            steps.spend_on_request(db, opened.register.ref, opened.record.body)
        case _ if opened.record.kind == Kind.SNAPSHOT:
            pass
        case _:
            raise Damaged(f"unknown kind of log record: {opened.record.kind[:40]!r}")


def _spend(db: sqlite3.Connection, opened: Opened) -> None:
    """Enter the usage of a summary, or of model calls that gave no step."""
    ref, record = opened.register.ref, opened.record
    row = db.execute(
        "SELECT run_id FROM sessions WHERE workspace = ? AND session = ?", (ref.workspace, ref.session)
    ).fetchone()
    steps.spend(db, ref, row[0] if row else 0, record.body.get("usage", {}), record.at_ms)


def _anchor(db: sqlite3.Connection, opened: Opened, anchor: Anchor) -> None:
    record, sequence = opened.record, opened.stored.sequence
    if record.kind in CONTROLS:
        wakes.ordered(db, opened, anchor)
    if record.kind == Kind.ACQUIRED and anchor.turn is not None:
        wakes.take(db, opened, anchor)
        _begin(db, opened, anchor)
    elif record.kind == Kind.TAKEN_OVER and anchor.turn is not None:
        _hold(db, opened, anchor)
    elif record.kind in ENDS_TURN:
        wakes.settle(db, opened.register.ref, anchor.last_run_id, over=record.kind != Kind.TURN_ENDED)
        _end(db, opened, anchor)
    if record.kind == Kind.DELETED:
        wakes.refuse_rest(db, anchor)
    if record.kind == Kind.REPAIRED:
        wakes.account(db, opened, anchor)
    elif record.kind in CLEARED:
        wakes.dispose(db, anchor, "superseded", CLEARED[Kind(record.kind)])
    elif record.kind == Kind.INPUTS_REFUSED:
        wakes.dispose(db, anchor, "refused", str(record.body.get("reason", "")))
    elif record.kind == Kind.STEERED and anchor.turn is not None:
        content = {"kind": "message", "text": record.body["text"], "by": str(record.body.get("by", ""))}
        message = items.Item("message", "user", content)
        items.add(db, opened, [message], items.Place(anchor.run_id, anchor.turn.id, None))
    db.execute(
        "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET agent = excluded.agent, status = excluded.status, anchor = excluded.anchor,"
        " changed_at_ms = excluded.changed_at_ms, sequence = excluded.sequence, run_id = excluded.run_id,"
        " runs_without_progress = excluded.runs_without_progress, quarantine = excluded.quarantine,"
        # A pause lasts until the resume, whatever else is ordered in between.
        " paused = CASE excluded.status WHEN 'paused' THEN coalesce(excluded.paused, paused) END",
        (
            opened.register.ref.workspace,
            opened.register.ref.session,
            anchor.agent,
            anchor.status,
            as_json(anchor.to_json()),
            record.at_ms,
            record.at_ms,
            sequence,
            anchor.run_id,
            anchor.runs_without_progress,
            _quarantine(opened),
            _paused(opened),
        ),
    )


def _quarantine(opened: Opened) -> str | None:
    """The record, time and reason of a quarantine."""
    body = opened.record.body
    if opened.record.kind != Kind.QUARANTINED:
        return None
    damage = body.get("damage", {})
    return as_json(
        {
            "sequence": damage.get("sequence"),
            "register": damage.get("register"),
            "reason": str(body.get("reason", "")),
            "since": iso(opened.record.at_ms),
        }
    )


def _paused(opened: Opened) -> str | None:
    """The author, time and reason of a pause."""
    record = opened.record
    if record.kind != Kind.PAUSED:
        return None
    who = str(record.body.get("by") or record.writer)
    return as_json({"who": who, "since": iso(record.at_ms), "why": str(record.body.get("reason", ""))})


def _holder(opened: Opened, anchor: Anchor) -> dict[str, object]:
    return {
        "generation": anchor.generation,
        "execution_id": anchor.execution_id,
        "sequence": opened.stored.sequence,
        "at_ms": opened.record.at_ms,
    }


def _begin(db: sqlite3.Connection, opened: Opened, anchor: Anchor) -> None:
    assert anchor.turn is not None  # noqa: S101 - checked by the caller
    insert(
        db,
        "turns",
        sequence=opened.stored.sequence,
        workspace=anchor.workspace,
        session=anchor.session,
        run_id=anchor.run_id,
        turn_id=anchor.turn.id,
        status="in_progress",
        reason="",
        started_at_ms=opened.record.at_ms,
        woken_by=anchor.turn.woken_by,
        inputs_through=anchor.turn.inputs_through,
        holders=as_json([_holder(opened, anchor)]),
    )


def _hold(db: sqlite3.Connection, opened: Opened, anchor: Anchor) -> None:
    assert anchor.turn is not None  # noqa: S101 - checked by the caller
    db.execute(
        "UPDATE turns SET holders = json_insert(holders, '$[#]', json(?)), woken_by = ?"
        " WHERE workspace = ? AND session = ? AND run_id = ?",
        (
            as_json(_holder(opened, anchor)),
            anchor.turn.woken_by,
            anchor.workspace,
            anchor.session,
            anchor.run_id,
        ),
    )


def _end(db: sqlite3.Connection, opened: Opened, anchor: Anchor) -> None:
    body = opened.record.body
    if "step" in body:
        steps.step(db, opened, anchor.last_run_id, read_head(body["step"]))
    _spend(db, opened)
    outcome = anchor.last_run_outcome or "failed"
    db.execute(
        "UPDATE turns SET status = ?, outcome = ?, reason = ?, ended_at_ms = ?, ended_sequence = ?"
        " WHERE workspace = ? AND session = ? AND run_id = ? AND ended_at_ms IS NULL",
        (
            _STATUS_OF_OUTCOME.get(outcome, "completed"),
            outcome,
            str(body.get("reason") or anchor.last_run_reason),
            opened.record.at_ms,
            opened.stored.sequence,
            anchor.workspace,
            anchor.session,
            anchor.last_run_id,
        ),
    )
