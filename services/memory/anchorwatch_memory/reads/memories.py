"""Durable memories: list and search."""

from __future__ import annotations

import re
import sqlite3

from anchorwatch_memory.reads import show
from anchorwatch_memory.reads.lists import Result
from anchorwatch_memory.reads.pages import Listing, Row, Where, page, read_window, select
from anchorwatch_memory.reads.params import Params, known_session, required, text

MEMORIES = Listing("memories", "memories", "sequence", show.memory)
WORDS_MAX = 16
_WORD = re.compile(r"\w+")


def memories(db: sqlite3.Connection, params: Params) -> Result:
    """A page of memories; with ``q`` one page of the best matches."""
    workspace, query = required(params, "workspace"), text(params, "q")
    window, session = read_window(params), known_session(db, params)
    if query is not None:
        return {
            "data": [show.memory(row) for row in search(db, workspace, query, window.limit)],
            "next": None,
        }
    where = Where({"workspace": workspace, "session": session, "topic": text(params, "topic")})
    return page(db, MEMORIES, where, window)


def search(db: sqlite3.Connection, workspace: str, query: str, limit: int) -> list[Row]:
    """The memories of the workspace that contain a word of the query, best match first."""
    words = _WORD.findall(query)[:WORDS_MAX]
    if not words:
        return []
    if _has_words(db):
        # Each word is quoted, so none is a search operator.
        wanted = " OR ".join(f'"{word}"' for word in words)
        return select(
            db,
            "SELECT memories.* FROM memories_words JOIN memories ON memories.sequence = memories_words.rowid"
            " WHERE memories_words MATCH ? AND workspace = ? ORDER BY rank, sequence DESC LIMIT ?",
            (wanted, workspace, limit),
        )
    return _search_plainly(db, workspace, words, limit)


def _search_plainly(db: sqlite3.Connection, workspace: str, words: list[str], limit: int) -> list[Row]:
    """The same without a full-text index, ordered by the number of matching words."""
    scores = " + ".join(r"(text || ' ' || topic LIKE ? ESCAPE '\')" for _ in words)
    patterns = ["%" + re.sub(r"([%_\\])", r"\\\1", word) + "%" for word in words]
    sql = (
        f"SELECT *, {scores} AS score FROM memories"  # noqa: S608 - a fixed term, once for each word
        " WHERE workspace = ? AND score > 0 ORDER BY score DESC, sequence DESC LIMIT ?"
    )
    return select(db, sql, [*patterns, workspace, limit])


def _has_words(db: sqlite3.Connection) -> bool:
    found = db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'memories_words'").fetchone()
    return found is not None
