"""From one journal message to rows. A record that cannot be trusted becomes a row that says so; later ones are entered."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace

from anchorwatch.bus.port import Stored
from anchorwatch.core.errors import AnchorWatchError, BadInput
from anchorwatch.journal.reading import ODD, Opened, open_record
from anchorwatch.journal.timeline import Entry, damaged, entry_of
from anchorwatch.topology.subjects import FILLER, parse_register

from anchorwatch_memory.fold import effects, outputs, planner, wakes
from anchorwatch_memory.schema import as_json, insert

BROKEN_CHAIN = "the planner record before this one is missing or was altered"
FAULT = "fault"
_ODD = (
    *ODD,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.DataError,
    sqlite3.ProgrammingError,
)
"""What a verified record raises if a field that its kind requires is missing or has the wrong type."""


def fold(db: sqlite3.Connection, stored: Stored) -> bool:
    """Enter one message, whatever it holds: all of it or nothing, and its entry in the timeline.

    False: a fault of this code kept it out. Its entry has the kind `FAULT`.
    """
    if stored.subject == FILLER:
        return True
    db.execute("SAVEPOINT record")
    is_entered = True
    try:
        opened = open_record(stored)
        entry = _enter(db, opened, entry_of(opened, planner.anchor_before(db, opened)))
    except AnchorWatchError as error:
        entry = _refuse(db, stored, error.message)
    except _ODD as error:
        entry = _refuse(db, stored, f"a field is missing or odd: {error!r}")
    except sqlite3.Error:
        raise
    except Exception as error:  # noqa: BLE001 - a retry would fail too, and block every later record
        db.execute("ROLLBACK TO record")
        what = f"record {stored.sequence} could not be entered"
        entry, is_entered = replace(damaged(stored, repr(error)), kind=FAULT, what=what), False
    if entry is not None:
        _write_entry(db, entry)
    db.execute("RELEASE record")
    return is_entered


def _enter(db: sqlite3.Connection, opened: Opened, entry: Entry | None) -> Entry | None:
    match opened.register.path[0]:
        case "in":
            wakes.accept(db, opened)
        case "p":
            if not planner.follows(db, opened):
                _count_damaged(db)
                # A snapshot has no entry of its own.
                entry = entry or damaged(opened.stored, "")
                entry = replace(entry, why=f"{BROKEN_CHAIN}; {entry.why}".rstrip("; "))
            planner.enter(db, opened)
        case "fx":
            effects.enter(db, opened)
        case "late":
            effects.late(db, opened)
        case "art":
            outputs.artifact(db, opened)
        case "sent":
            outputs.delivery(db, opened)
        case _:
            # A register of a newer release has an entry only.
            pass
    return entry


def _refuse(db: sqlite3.Connection, stored: Stored, why: str) -> Entry:
    db.execute("ROLLBACK TO record")
    _count_damaged(db)
    entry = damaged(stored, why)
    with contextlib.suppress(BadInput):
        register = parse_register(stored.subject)
        if register.path[0] == "p":
            planner.break_chain(db, register.ref, stored.sequence)
    return entry


def _count_damaged(db: sqlite3.Connection) -> None:
    db.execute("UPDATE progress SET damaged = damaged + 1")


def _write_entry(db: sqlite3.Connection, entry: Entry) -> None:
    insert(
        db,
        "timeline",
        sequence=entry.sequence,
        workspace=entry.workspace,
        session=entry.session,
        at_ms=entry.at_ms,
        kind=entry.kind,
        what=entry.what,
        why=entry.why,
        who=entry.who,
        run_id=entry.ids.get("run_id"),
        turn_id=entry.ids.get("turn_id"),
        ids=as_json(entry.ids),
        details=as_json(entry.details),
    )
