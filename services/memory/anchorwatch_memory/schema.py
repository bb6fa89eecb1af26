"""The tables, and how a row is inserted. All tables are projections: a file with another schema is rebuilt from the journal.

Keys are journal sequences wherever there is an order, so a page's cursor is a number. Values that no query reads are
stored as JSON text.
"""

from __future__ import annotations

import json
import sqlite3
from functools import cache
from typing import Any

VERSION = 8

TABLES = """
CREATE TABLE progress (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    sequence INTEGER NOT NULL, subject TEXT NOT NULL, time_ms INTEGER NOT NULL,
    damaged INTEGER NOT NULL
);
INSERT INTO progress VALUES (1, 0, '', 0, 0);

CREATE TABLE sessions (
    workspace TEXT NOT NULL, session TEXT NOT NULL,
    agent TEXT NOT NULL, status TEXT NOT NULL, anchor TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL, changed_at_ms INTEGER NOT NULL, sequence INTEGER NOT NULL,
    run_id INTEGER NOT NULL, runs_without_progress INTEGER NOT NULL,
    quarantine TEXT, paused TEXT,
    PRIMARY KEY (workspace, session)
) WITHOUT ROWID;

-- The chain of the planner's records. It continues past an anchor that cannot be read.
CREATE TABLE chains (
    workspace TEXT NOT NULL, session TEXT NOT NULL, sequence INTEGER NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (workspace, session)
) WITHOUT ROWID;

CREATE TABLE turns (
    sequence INTEGER PRIMARY KEY,
    workspace TEXT NOT NULL, session TEXT NOT NULL, run_id INTEGER NOT NULL, turn_id TEXT NOT NULL,
    status TEXT NOT NULL, outcome TEXT, reason TEXT NOT NULL,
    started_at_ms INTEGER NOT NULL, ended_at_ms INTEGER, ended_sequence INTEGER,
    woken_by INTEGER NOT NULL, inputs_through INTEGER NOT NULL, holders TEXT NOT NULL
);
CREATE UNIQUE INDEX turns_run ON turns (workspace, session, run_id);
CREATE INDEX turns_id ON turns (workspace, session, turn_id);

CREATE TABLE steps (
    sequence INTEGER PRIMARY KEY,
    workspace TEXT NOT NULL, session TEXT NOT NULL, run_id INTEGER NOT NULL, step INTEGER NOT NULL,
    at_ms INTEGER NOT NULL, text TEXT NOT NULL, calls INTEGER NOT NULL,
    observation TEXT, prompt TEXT, usage TEXT NOT NULL, rejected TEXT NOT NULL, context TEXT NOT NULL
);
CREATE INDEX steps_run ON steps (workspace, session, run_id, step);

-- Tokens of model calls and their cost in millionths, by run and by UTC day since 1970.
CREATE TABLE spending (
    workspace TEXT NOT NULL, session TEXT NOT NULL, run_id INTEGER NOT NULL, day INTEGER NOT NULL,
    calls INTEGER NOT NULL, prompt INTEGER NOT NULL, completion INTEGER NOT NULL, micros INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    PRIMARY KEY (workspace, session, run_id, day)
) WITHOUT ROWID;
CREATE INDEX spending_day ON spending (workspace, session, day);

CREATE TABLE inputs (
    sequence INTEGER PRIMARY KEY,
    workspace TEXT NOT NULL, session TEXT NOT NULL, input_id TEXT NOT NULL,
    kind TEXT NOT NULL, priority INTEGER NOT NULL, accepted_at_ms INTEGER NOT NULL, expires_at_ms INTEGER,
    source TEXT NOT NULL, type TEXT NOT NULL, text TEXT NOT NULL, who TEXT NOT NULL,
    disposition TEXT NOT NULL, run_id INTEGER, turn_id TEXT, reason TEXT NOT NULL
);
CREATE INDEX inputs_session ON inputs (workspace, session, sequence);
CREATE INDEX inputs_pending ON inputs (workspace, session, sequence) WHERE disposition = 'pending';
CREATE INDEX inputs_run ON inputs (workspace, session, run_id);

-- Wake-ups that are not inputs: outcomes of commands, and orders.
CREATE TABLE outcomes_and_orders (
    sequence INTEGER PRIMARY KEY,
    workspace TEXT NOT NULL, session TEXT NOT NULL, input_id TEXT NOT NULL,
    kind TEXT NOT NULL, priority INTEGER NOT NULL, accepted_at_ms INTEGER NOT NULL, expires_at_ms INTEGER,
    source TEXT NOT NULL, type TEXT NOT NULL, text TEXT NOT NULL, who TEXT NOT NULL,
    disposition TEXT NOT NULL, run_id INTEGER, turn_id TEXT, reason TEXT NOT NULL
);
CREATE INDEX outcomes_and_orders_session ON outcomes_and_orders (workspace, session, sequence);
CREATE INDEX outcomes_and_orders_pending ON outcomes_and_orders (workspace, session, run_id) WHERE disposition = 'pending';
CREATE VIEW wakes AS SELECT * FROM inputs UNION ALL SELECT * FROM outcomes_and_orders;

-- A record may hold several items. The id is the record's sequence and the place in it.
CREATE TABLE items (
    id INTEGER PRIMARY KEY,
    workspace TEXT NOT NULL, session TEXT NOT NULL, sequence INTEGER NOT NULL,
    type TEXT NOT NULL, role TEXT NOT NULL, at_ms INTEGER NOT NULL,
    run_id INTEGER, turn_id TEXT, step INTEGER, content TEXT NOT NULL
);
CREATE INDEX items_session ON items (workspace, session, id);
CREATE INDEX items_run ON items (workspace, session, run_id, id);

CREATE TABLE effects (
    sequence INTEGER PRIMARY KEY,
    workspace TEXT NOT NULL, session TEXT NOT NULL,
    run_id INTEGER NOT NULL, step INTEGER NOT NULL, n INTEGER NOT NULL,
    turn_id TEXT NOT NULL, generation INTEGER, agent TEXT NOT NULL, pool TEXT NOT NULL,
    tool TEXT NOT NULL, args TEXT NOT NULL, resource TEXT NOT NULL,
    state TEXT NOT NULL, decided_at_ms INTEGER NOT NULL,
    owner TEXT, incarnation TEXT, claim_sequence INTEGER, claimed_at_ms INTEGER, attempts INTEGER NOT NULL,
    effect_key TEXT NOT NULL, outcome_sequence INTEGER, ended_at_ms INTEGER,
    text TEXT NOT NULL, data TEXT NOT NULL, durable INTEGER,
    rule TEXT NOT NULL, error TEXT NOT NULL, settled_by TEXT NOT NULL, late INTEGER NOT NULL,
    waits_for TEXT NOT NULL, verdict TEXT, note TEXT
);
CREATE UNIQUE INDEX effects_call ON effects (workspace, session, run_id, step, n);
CREATE INDEX effects_state ON effects (state);
CREATE INDEX effects_list ON effects (workspace, sequence);

CREATE TABLE deliveries (
    sequence INTEGER PRIMARY KEY,
    workspace TEXT NOT NULL, session TEXT NOT NULL, delivery_id TEXT NOT NULL,
    channel TEXT NOT NULL, channel_kind TEXT NOT NULL, record INTEGER NOT NULL, kinds TEXT NOT NULL,
    title TEXT NOT NULL, state TEXT NOT NULL, owner TEXT NOT NULL, claims INTEGER NOT NULL, error TEXT NOT NULL,
    first_at_ms INTEGER NOT NULL, last_at_ms INTEGER NOT NULL, last_sequence INTEGER NOT NULL
);
CREATE UNIQUE INDEX deliveries_id ON deliveries (workspace, session, delivery_id);

CREATE TABLE artifacts (
    sequence INTEGER PRIMARY KEY,
    workspace TEXT NOT NULL, session TEXT NOT NULL, artifact_id TEXT NOT NULL,
    name TEXT NOT NULL, media_type TEXT NOT NULL, size_bytes INTEGER NOT NULL, sha256 TEXT NOT NULL,
    run_id INTEGER, call TEXT NOT NULL, acting_as TEXT NOT NULL, derived_from TEXT NOT NULL,
    who TEXT NOT NULL, at_ms INTEGER NOT NULL
);
CREATE INDEX artifacts_id ON artifacts (workspace, artifact_id);

CREATE TABLE memories (
    sequence INTEGER PRIMARY KEY,
    workspace TEXT NOT NULL, memory_id TEXT NOT NULL, session TEXT NOT NULL, call TEXT NOT NULL,
    topic TEXT NOT NULL, text TEXT NOT NULL, at_ms INTEGER NOT NULL
);
CREATE UNIQUE INDEX memories_id ON memories (workspace, memory_id);
-- A withdrawn memory leaves its id, so that a second `forget` differs from one of an unknown memory. No content.
CREATE TABLE withdrawals (
    workspace TEXT NOT NULL, memory_id TEXT NOT NULL, session TEXT NOT NULL, call TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (workspace, memory_id)
) WITHOUT ROWID;

CREATE TABLE timeline (
    sequence INTEGER PRIMARY KEY,
    workspace TEXT NOT NULL, session TEXT NOT NULL, at_ms INTEGER NOT NULL,
    kind TEXT NOT NULL, what TEXT NOT NULL, why TEXT NOT NULL, who TEXT NOT NULL,
    run_id INTEGER, turn_id TEXT, ids TEXT NOT NULL, details TEXT NOT NULL
);
CREATE INDEX timeline_session ON timeline (workspace, session, sequence);
CREATE INDEX timeline_run ON timeline (workspace, session, run_id, sequence);
"""

SEARCH = (
    """CREATE VIRTUAL TABLE memories_words
    USING fts5 (text, topic, content = 'memories', content_rowid = 'sequence')""",
    """CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
        INSERT INTO memories_words (rowid, text, topic) VALUES (new.sequence, new.text, new.topic);
    END""",
    """CREATE TRIGGER memories_removed AFTER DELETE ON memories BEGIN
        INSERT INTO memories_words (memories_words, rowid, text, topic)
        VALUES ('delete', old.sequence, old.text, old.topic);
    END""",
)
"""Full-text search, if this SQLite has it."""


def statements() -> list[str]:
    """The statements of `TABLES`."""
    return [statement for statement in TABLES.split(";") if statement.strip()]


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=repr)


def as_json(value: Any) -> str:  # noqa: ANN401 - any plain data
    """Plain data as JSON text; a value without a JSON form (bytes) becomes its repr."""
    return _ENCODER.encode(value)


def insert(db: sqlite3.Connection, table: str, **values: Any) -> None:  # noqa: ANN401 - column values
    """Insert a row, unless one has the same key."""
    db.execute(_insert_sql(table, tuple(values)), tuple(values.values()))


@cache
def _insert_sql(table: str, columns: tuple[str, ...]) -> str:
    # Table and columns are named in this code, never by a client.
    marks = ", ".join("?" for _ in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) ON CONFLICT DO NOTHING"  # noqa: S608
