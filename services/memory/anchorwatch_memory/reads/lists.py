"""The lists, and single rows by name."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from typing import Any

from anchorwatch.codec import lift_anchor
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import BadInput, NotFound
from anchorwatch.core.session.state import Input
from anchorwatch.core.session.wakes import Windows, ready_at
from anchorwatch.core.times import from_iso, iso

from anchorwatch_memory.reads import show
from anchorwatch_memory.reads.pages import Listing, Row, Where, page, read_window, select
from anchorwatch_memory.reads.params import (
    DELIVERY_STATES,
    DISPOSITIONS,
    EFFECT_STATES,
    ITEM_TYPES,
    SESSION_STATUSES,
    WAKE_KINDS,
    Params,
    known_session,
    no_session,
    one_of,
    required,
    text,
)
from anchorwatch_memory.reads.prompt_marks import PromptMarks

Result = dict[str, Any]

SESSIONS = Listing("sessions", "sessions", "session", show.session)
EFFECTS = Listing("effects", "effects", "sequence", show.effect)
DELIVERIES = Listing("deliveries", "deliveries", "sequence", show.delivery)
ARTIFACTS = Listing("artifacts", "artifacts", "sequence", show.artifact)


def sessions(db: sqlite3.Connection, params: Params) -> Result:
    """The sessions of a workspace, by name."""
    where = Where(
        {"workspace": required(params, "workspace"), "status": one_of(params, "status", SESSION_STATUSES)}
    )
    return page(db, SESSIONS, where, read_window(params))


def session(db: sqlite3.Connection, params: Params) -> Result:
    """A session with its anchor, its usage, and counts of pending inputs, effects and damaged records."""
    row = session_row(db, params)
    key = (row["workspace"], row["session"])
    pending = db.execute(
        "SELECT count(*) FROM inputs WHERE workspace = ? AND session = ? AND disposition = 'pending'", key
    ).fetchone()[0]
    effects = db.execute(
        "SELECT state, count(*) FROM effects WHERE workspace = ? AND session = ? GROUP BY state", key
    ).fetchall()
    damaged = db.execute(
        "SELECT count(*) FROM timeline WHERE workspace = ? AND session = ? AND kind = 'damaged'", key
    ).fetchone()[0]
    more = {"pending_inputs": pending, "effects": dict(effects), "damaged_records": damaged}
    usage = show.usage_of_session(db, *key)
    words = {"last_words": last_words(db, (*key, None))}
    return {**show.session(row), **more, "usage": usage, **words, "anchor": json.loads(row["anchor"])}


def last_words(db: sqlite3.Connection, key: tuple[str, str, int | None]) -> dict[str, Any] | None:
    """The model's last words in a session or, with a run number, in that run; None: it said nothing."""
    rows = select(
        db,
        "SELECT run_id, at_ms, text FROM steps WHERE workspace = ? AND session = ? AND text != ''"
        " AND (? IS NULL OR run_id = ?) ORDER BY run_id DESC, step DESC LIMIT 1",
        (*key, key[2]),
    )
    if not rows:
        return None
    return {"run_id": rows[0]["run_id"], "at": iso(rows[0]["at_ms"]), "text": rows[0]["text"]}


def session_row(db: sqlite3.Connection, params: Params) -> Row:
    """The row of a session.

    Raises:
        NotFound: it does not exist.
    """
    name = required(params, "session")
    rows = select(
        db,
        "SELECT * FROM sessions WHERE workspace = ? AND session = ?",
        (required(params, "workspace"), name),
    )
    if not rows:
        raise no_session(name)
    return rows[0]


def in_session(db: sqlite3.Connection, params: Params) -> dict[str, object]:
    """The conditions of a list of a session or, if the parameters name one, of a turn."""
    row = session_row(db, params)
    found: dict[str, object] = {"workspace": row["workspace"], "session": row["session"]}
    if (turn := text(params, "turn")) is not None:
        found["run_id"] = run_of(db, row["workspace"], row["session"], turn)
    return found


def run_of(db: sqlite3.Connection, workspace: str, session: str, turn: str) -> int:
    """The run number of a turn, by its id or its number.

    Raises:
        NotFound: it does not exist.
    """
    column, value = ("run_id", int(turn[:18])) if turn.isdecimal() and turn.isascii() else ("turn_id", turn)
    found = db.execute(
        f"SELECT run_id FROM turns WHERE workspace = ? AND session = ? AND {column} = ?",  # noqa: S608 - one of two names
        (workspace, session, value),
    ).fetchone()
    if found is None:
        raise NotFound(
            f"session {session} has no turn {turn[:80]}", hint="name a turn by its id or its run number"
        )
    return int(found[0])


def items(db: sqlite3.Connection, params: Params) -> Result:
    """The conversation of a session."""
    where = Where({**in_session(db, params), "type": one_of(params, "type", ITEM_TYPES)})
    return page(db, _marked(db, where, "items", "id", show.item), where, read_window(params))


def timeline(db: sqlite3.Connection, params: Params) -> Result:
    """The timeline of a session."""
    where = Where(in_session(db, params))
    return page(db, _marked(db, where, "timeline", "sequence", show.entry), where, read_window(params))


def _marked(
    db: sqlite3.Connection, where: Where, table: str, key: str, shown: Callable[[Row], dict[str, Any]]
) -> Listing:
    """A list whose rows say how the last request showed their turn."""
    marks = PromptMarks(db, str(where.values["workspace"]), str(where.values["session"]))
    return Listing(table, table, key, lambda row: {**shown(row), **marks.mark(row)})


def wakes(db: sqlite3.Connection, params: Params, windows: Windows) -> Result:
    """The wake-ups of a session; a pending one has the time when its debounce window ends."""
    row = session_row(db, params)
    anchor = lift_anchor(json.loads(row["anchor"]))

    def shown(wake: Row) -> dict[str, Any]:
        entry = show.wake(wake)
        if wake["disposition"] == "pending" and wake["kind"] != "outcome":
            entry["due_at"] = _due_at(_input(wake), anchor, windows)
        return entry

    listing = Listing("wakes", "wakes", "sequence", shown)
    where = Where(
        {
            "workspace": row["workspace"],
            "session": row["session"],
            "disposition": one_of(params, "disposition", DISPOSITIONS),
            "kind": one_of(params, "kind", WAKE_KINDS),
        }
    )
    return page(db, listing, where, read_window(params))


def _due_at(wake: Input, anchor: Anchor, windows: Windows) -> str | None:
    """When the wake-up starts a turn by itself; None unless the session is idle."""
    if anchor.status != "idle":
        return None
    at_ms = ready_at(wake, from_iso(anchor.next_check_at) if anchor.next_check_at else None, windows)
    return iso(at_ms) if at_ms is not None else None


def _input(row: Row) -> Input:
    return Input(
        sequence=row["sequence"],
        input_id=row["input_id"],
        kind=row["kind"],
        priority=row["priority"],
        at_ms=row["accepted_at_ms"],
        source=row["source"],
        type=row["type"],
        expires_at_ms=row["expires_at_ms"],
    )


def effects(db: sqlite3.Connection, params: Params) -> Result:
    """Commands of a workspace."""
    workspace, session_name = required(params, "workspace"), known_session(db, params)
    found: dict[str, object] = {
        "workspace": workspace,
        "session": session_name,
        "state": one_of(params, "state", EFFECT_STATES),
        "tool": text(params, "tool"),
    }
    turn = text(params, "turn")
    if turn is not None and session_name is not None:
        found["run_id"] = run_of(db, workspace, session_name, turn)
    elif turn is not None:
        found["turn_id"] = _turn_id(db, workspace, turn)
    return page(db, EFFECTS, Where(found), read_window(params))


def _turn_id(db: sqlite3.Connection, workspace: str, turn: str) -> str:
    """The id of a turn of any session.

    Raises:
        BadInput: it is a run number, which is not unique across sessions. NotFound: the turn does not exist.
    """
    if turn.isdecimal():
        raise BadInput(
            f"run number {turn[:18]} is ambiguous without a session",
            hint="add the session, or use the turn's id",
        )
    found = db.execute("SELECT 1 FROM turns WHERE workspace = ? AND turn_id = ?", (workspace, turn))
    if found.fetchone() is None:
        raise NotFound(f"there is no turn {turn[:80]}", hint="`anchorwatch timeline SESSION` names the turns")
    return turn


def deliveries(db: sqlite3.Connection, params: Params) -> Result:
    """Notifications of a workspace."""
    where = Where(
        {
            "workspace": required(params, "workspace"),
            "session": known_session(db, params),
            "state": one_of(params, "state", DELIVERY_STATES),
            "channel": text(params, "channel"),
        }
    )
    return page(db, DELIVERIES, where, read_window(params))


def artifacts(db: sqlite3.Connection, params: Params) -> Result:
    """Artifacts of a workspace."""
    where = Where({"workspace": required(params, "workspace"), "session": known_session(db, params)})
    return page(db, ARTIFACTS, where, read_window(params))


def artifact(db: sqlite3.Connection, params: Params) -> Result:
    """One artifact.

    Raises:
        NotFound: the workspace has no artifact with this id.
    """
    artifact_id = required(params, "artifact_id")
    rows = select(
        db,
        "SELECT * FROM artifacts WHERE workspace = ? AND artifact_id = ?",
        (required(params, "workspace"), artifact_id),
    )
    if not rows:
        raise NotFound(f"there is no artifact {artifact_id[:80]}", hint="/api/artifacts lists them")
    return show.artifact(rows[0])


def stats(db: sqlite3.Connection) -> Result:
    """Totals over all workspaces."""
    return {
        "sessions": dict(db.execute("SELECT status, count(*) FROM sessions GROUP BY status").fetchall()),
        "effects": dict(db.execute("SELECT state, count(*) FROM effects GROUP BY state").fetchall()),
        "runs_without_progress_max": db.execute(
            "SELECT coalesce(max(runs_without_progress), 0) FROM sessions"
        ).fetchone()[0],
        "inputs_refused": db.execute(
            "SELECT coalesce(sum(json_extract(anchor, '$.inputs_refused')), 0) FROM sessions"
        ).fetchone()[0],
        "damaged": db.execute("SELECT damaged FROM progress").fetchone()[0],
        "spending": show.usage_of_all(db),
    }
