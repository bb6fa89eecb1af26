"""The planner's records: anchors make sessions and turns, commands and steps make what a turn did."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import Damaged
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session.events import StepHead
from anchorwatch.core.session.transitions import CONTROLS, ENDS_TURN
from anchorwatch.core.times import iso
from anchorwatch.journal.mapping import read_command, read_head
from anchorwatch.journal.reading import Opened

from anchorwatch_memory.fold import answers, inputs, items, spending
from anchorwatch_memory.fold.effects import decided
from anchorwatch_memory.rows import as_json, insert

UNREADABLE = "?"
DISPOSES: Mapping[str, str] = {
    Kind.RESET: "a reset disposed of it",
    Kind.WAKES_CLEARED: "a person cleared what waited",
}
_STATUS_OF_OUTCOME = {"failed": "failed", "over_budget": "failed", "cancelled": "cancelled"}


def follows(db: sqlite3.Connection, opened: Opened) -> bool:
    """Whether the record follows the planner record before it; the chain goes on from it in any case."""
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
    """A planner record cannot be read: it is told as damaged, and the next one need not follow it."""
    _link(db, ref, sequence, UNREADABLE)


def _link(db: sqlite3.Connection, ref: SessionRef, sequence: int, digest: str) -> None:
    db.execute(
        "INSERT OR REPLACE INTO chains VALUES (?, ?, ?, ?)", (ref.workspace, ref.session, sequence, digest)
    )


def enter(db: sqlite3.Connection, opened: Opened) -> None:
    """Enter a record of the planner's chain."""
    match opened.register.kind:
        case "p.anchor":
            assert opened.anchor is not None  # noqa: S101 - of this register
            _anchor(db, opened, opened.anchor)
        case "p.cmd":
            _command(db, opened)
        case _ if opened.record.kind == Kind.STEP:
            body = opened.record.body
            _step(db, opened, body["run"], read_head(body["step"]), [])
        case _ if opened.record.kind == Kind.COMPACTION:
            usage = opened.record.body.get("usage", {})
            spending.of_summary(db, opened.register.ref, usage, opened.record.at_ms)
        case _ if opened.record.kind == Kind.SNAPSHOT:
            pass
        case _:
            raise Damaged(f"{opened.record.kind[:40]!r} is no kind of log record")


def _anchor(db: sqlite3.Connection, opened: Opened, anchor: Anchor) -> None:
    record, sequence = opened.record, opened.stored.sequence
    if record.kind in CONTROLS:
        answers.ordered(db, opened, anchor)
    if record.kind == Kind.ACQUIRED and anchor.turn is not None:
        inputs.take(db, opened, anchor)
        _begin(db, opened, anchor)
    elif record.kind == Kind.TAKEN_OVER and anchor.turn is not None:
        _hold(db, opened, anchor)
    elif record.kind in ENDS_TURN:
        answers.settle(db, opened.register.ref, anchor.last_run_id, over=record.kind != Kind.TURN_ENDED)
        _end(db, opened, anchor)
    if record.kind == Kind.DELETED:
        inputs.refuse_rest(db, anchor)
    if record.kind == Kind.REPAIRED:
        inputs.account(db, opened, anchor)
    elif record.kind in DISPOSES:
        inputs.dispose(db, anchor, "superseded", DISPOSES[record.kind])
    elif record.kind == Kind.INPUTS_REFUSED:
        inputs.dispose(db, anchor, "refused", str(record.body.get("reason", "")))
    elif record.kind == Kind.STEERED and anchor.turn is not None:
        said = items.Item("message", "user", {"kind": "message", "text": record.body["text"]})
        items.add(db, opened, [said], items.Place(anchor.run_id, anchor.turn.id, None))
    db.execute(
        "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET agent = excluded.agent, status = excluded.status, anchor = excluded.anchor,"
        " changed_at_ms = excluded.changed_at_ms, sequence = excluded.sequence, run_id = excluded.run_id,"
        " runs_without_progress = excluded.runs_without_progress, quarantine = excluded.quarantine,"
        # Whoever paused it did so until it is resumed, whatever else is ordered meanwhile.
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
    """Since which record, when and why, while it lasts."""
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
    """Who paused it, when and why."""
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
    assert anchor.turn is not None  # noqa: S101 - the caller looked
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
    assert anchor.turn is not None  # noqa: S101 - the caller looked
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
        _step(db, opened, anchor.last_run_id, read_head(body["step"]), [])
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


def _command(db: sqlite3.Connection, opened: Opened) -> None:
    command = read_command(opened.register.pool, opened.record.body)
    call = items.Item(
        "tool_call",
        "assistant",
        {
            "n": command.call.n,
            "call": f"{opened.register.ref.session}/{command.call}",
            "tool": command.tool,
            "args": dict(command.args),
            "label": command.label,
        },
    )
    if command.head is not None:
        _step(db, opened, command.call.run, command.head, [call])
    else:
        place = items.Place(command.call.run, command.turn_id, command.call.step)
        items.add(db, opened, [call], place)
    decided(db, opened, command)


def _step(
    db: sqlite3.Connection, opened: Opened, run_id: int, head: StepHead, calls: list[items.Item]
) -> None:
    ref = opened.register.ref
    turn = db.execute(
        "SELECT turn_id FROM turns WHERE workspace = ? AND session = ? AND run_id = ?",
        (ref.workspace, ref.session, run_id),
    ).fetchone()
    insert(
        db,
        "steps",
        sequence=opened.stored.sequence,
        workspace=ref.workspace,
        session=ref.session,
        run_id=run_id,
        step=head.step,
        at_ms=opened.record.at_ms,
        text=head.text,
        calls=head.calls,
        observation=as_json(opened_observation(head)) if head.observation else None,
        prompt=as_json(asdict(head.prompt)) if head.prompt else None,
        usage=as_json(dict(head.usage)),
        rejected=as_json([list(each) for each in head.rejected]),
        context=as_json(dict(head.context)),
    )
    spending.of_step(db, ref, head, opened.record.at_ms)
    answers.settle(db, ref, run_id)
    inputs.join(db, ref, (run_id, turn[0] if turn else None, head.step), head.joined)
    place = items.Place(run_id, turn[0] if turn else None, head.step)
    items.add(db, opened, [*items.of_head(head), *calls], place)


def opened_observation(head: StepHead) -> dict[str, object]:
    """What of the step's observation a reader of the step is shown; its text is an item of the conversation."""
    assert head.observation is not None  # noqa: S101 - the caller looked
    return {"digest": head.observation.digest, "at_ms": head.observation.at_ms}
