"""Commands, their effects, and the memories that the pool `memory` made."""

from __future__ import annotations

import sqlite3

from anchorwatch.core.effect.state import (
    Claimed,
    EffectEvent,
    GateAsked,
    GateDecided,
    Outcome,
    Released,
)
from anchorwatch.core.errors import Damaged
from anchorwatch.core.session.events import CommandDecided
from anchorwatch.journal.effect_mapping import read_effect
from anchorwatch.journal.reading import Opened

from anchorwatch_memory.fold import items, wakes
from anchorwatch_memory.schema import as_json, insert

GATED = "gated"
POOL = "memory"
REMEMBER, FORGET = "remember", "forget"


def decided(db: sqlite3.Connection, opened: Opened, command: CommandDecided) -> None:
    """A command was decided: its turn waits for the outcome."""
    ref, call = opened.register.ref, command.call
    insert(
        db,
        "effects",
        sequence=opened.stored.sequence,
        workspace=ref.workspace,
        session=ref.session,
        run_id=call.run,
        step=call.step,
        n=call.n,
        turn_id=command.turn_id,
        generation=command.generation,
        agent=command.agent,
        pool=command.pool,
        tool=command.tool,
        args=as_json(dict(command.args)),
        resource=command.resource,
        state="pending",
        decided_at_ms=opened.record.at_ms,
        **{
            **_BLANK,
            "effect_key": command.effect_key,
            "waits_for": as_json([f"{ref.session}/{each.call}" for each in command.after]),
        },
    )
    db.execute(
        "UPDATE turns SET status = 'waiting'"
        " WHERE workspace = ? AND session = ? AND run_id = ? AND ended_at_ms IS NULL",
        (ref.workspace, ref.session, call.run),
    )


_BLANK = {
    "attempts": 0,
    "effect_key": "",
    "text": "",
    "data": "{}",
    "rule": "",
    "error": "",
    "settled_by": "",
    "late": 0,
    "waits_for": "[]",
}


def enter(db: sqlite3.Connection, opened: Opened) -> None:
    """Enter a record of a command's family."""
    sequence = _row(db, opened)
    at_ms = opened.record.at_ms
    event: EffectEvent = read_effect(opened.stored)
    match event:
        case Claimed():
            db.execute(
                "UPDATE effects SET state = 'claimed', owner = ?, incarnation = ?, claim_sequence = ?,"
                " claimed_at_ms = ?, attempts = attempts + 1, effect_key = ? WHERE sequence = ?",
                (
                    event.owner.instance,
                    event.owner.incarnation,
                    opened.stored.sequence,
                    at_ms,
                    event.effect_key,
                    sequence,
                ),
            )
        case Released():
            db.execute(
                "UPDATE effects SET state = 'pending', owner = NULL, incarnation = NULL, claim_sequence = NULL"
                " WHERE sequence = ?",
                (sequence,),
            )
        case GateAsked():
            db.execute("UPDATE effects SET state = ? WHERE sequence = ?", (GATED, sequence))
        case GateDecided():
            db.execute("UPDATE effects SET state = 'pending' WHERE sequence = ?", (sequence,))
        case Outcome():
            _settle(db, opened, event, sequence)
            wakes.outcome(db, opened, event)


def late(db: sqlite3.Connection, opened: Opened) -> None:
    """A result came after the outcome. It is evidence and changes no state."""
    sequence = _row(db, opened)
    db.execute("UPDATE effects SET late = late + 1 WHERE sequence = ?", (sequence,))


def _row(db: sqlite3.Connection, opened: Opened) -> int:
    """The sequence of the effect's row, which is created here if the command itself could not be read."""
    ref, call = opened.register.ref, opened.register.call
    where = (ref.workspace, ref.session, call.run, call.step, call.n)
    found = db.execute(
        "SELECT sequence FROM effects WHERE workspace = ? AND session = ? AND run_id = ? AND step = ? AND n = ?",
        where,
    ).fetchone()
    if found is not None:
        return int(found[0])
    insert(
        db,
        "effects",
        sequence=opened.stored.sequence,
        workspace=ref.workspace,
        session=ref.session,
        run_id=call.run,
        step=call.step,
        n=call.n,
        turn_id="",
        agent="",
        pool=opened.register.pool if opened.register.path[0] == "fx" else "",
        tool=str(opened.record.body.get("tool", "")),
        args="{}",
        resource="",
        state="pending",
        decided_at_ms=opened.record.at_ms,
        **_BLANK,
    )
    return opened.stored.sequence


def _settle(db: sqlite3.Connection, opened: Opened, outcome: Outcome, sequence: int) -> None:
    ref, call = opened.register.ref, opened.register.call
    if outcome.call != call:
        raise Damaged(f"the register of call {call} has the outcome of call {outcome.call}")
    db.execute(
        "UPDATE effects SET state = ?, text = ?, data = ?, durable = ?, rule = ?, error = ?, settled_by = ?,"
        " outcome_sequence = ?, ended_at_ms = ?, effect_key = CASE WHEN ? = '' THEN effect_key ELSE ? END,"
        " verdict = ?, note = ?"
        " WHERE sequence = ?",
        (
            outcome.state,
            outcome.text,
            as_json(dict(outcome.data)),
            int(outcome.durable),
            outcome.rule,
            outcome.error,
            outcome.by,
            opened.stored.sequence,
            opened.record.at_ms,
            outcome.effect_key,
            outcome.effect_key,
            outcome.resolution.verdict if outcome.resolution else None,
            outcome.resolution.note if outcome.resolution else None,
            sequence,
        ),
    )
    content = {
        "n": call.n,
        "call": f"{ref.session}/{call}",
        "tool": outcome.tool,
        "state": outcome.state,
        "text": outcome.text,
    }
    (turn_id,) = db.execute("SELECT turn_id FROM effects WHERE sequence = ?", (sequence,)).fetchone()
    place = items.Place(call.run, turn_id or outcome.turn_id or None, call.step)
    items.add(db, opened, [items.Item("tool_result", "tool", content)], place)
    if opened.register.pool == POOL:
        _update_memories(db, opened, outcome)
    _resume(db, opened)


def _resume(db: sqlite3.Connection, opened: Opened) -> None:
    """If the last command of a turn has its outcome, the turn continues."""
    ref, call = opened.register.ref, opened.register.call
    where = (ref.workspace, ref.session, call.run)
    db.execute(
        "UPDATE turns SET status = 'in_progress'"
        " WHERE workspace = ? AND session = ? AND run_id = ? AND status = 'waiting' AND NOT EXISTS ("
        "SELECT 1 FROM effects WHERE workspace = ? AND session = ? AND run_id = ?"
        " AND state IN ('pending', 'claimed', 'gated'))",
        where + where,
    )


def _update_memories(db: sqlite3.Connection, opened: Opened, outcome: Outcome) -> None:
    """Enter the memory that an outcome made or withdrew. These outcomes are the only records of memories."""
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
