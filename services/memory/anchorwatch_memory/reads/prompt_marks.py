"""How the last request showed each turn: whole, with excerpts, as one line, in a summary, or not at all after a reset.

The request is built from the session's state (`anchorwatch.context.ladder`). The marks follow from the rung, the
summary and the shortened runs that the session's last step recorded.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from typing import Any, Literal

from anchorwatch.context.ladder import Rung
from anchorwatch.core.records import Kind
from anchorwatch.core.session.conversation import RECENT_TURNS

from anchorwatch_memory.reads.pages import Row, select

InPrompt = Literal["whole", "shortened", "skipped", "summary", "archived"]
"""``shortened``: excerpts replace its long texts. ``skipped``: a turn without actions, shown as one line.
``summary``: part of a summary. ``archived``: by a reset."""


@dataclass(slots=True)
class PromptMarks:
    """The marks of one session, within one read."""

    db: sqlite3.Connection
    workspace: str
    session: str
    _last: tuple[int, Rung, int] = (0, Rung.WHOLE, 0)
    _shortened: frozenset[int] = frozenset()
    _reset_at: int = 0
    _marks: dict[int, InPrompt] = field(default_factory=dict)

    def __post_init__(self) -> None:
        key = (self.workspace, self.session)
        steps = select(
            self.db,
            "SELECT run_id, context FROM steps WHERE workspace = ? AND session = ? AND context != '{}'"
            " ORDER BY run_id DESC, step DESC LIMIT 1",
            key,
        )
        for row in steps:
            context = json.loads(row["context"])
            name = str(context.get("rung", "")).upper()
            rung = Rung[name] if name in Rung.__members__ else Rung.WHOLE
            self._last = (row["run_id"], rung, int(context.get("summary", 0)))
            self._shortened = frozenset(context.get("shortened", ()))
        self._reset_at = self._last_reset()

    def _last_reset(self) -> int:
        """The sequence of the last reset that was not undone; 0 if there is none."""
        key = (self.workspace, self.session)
        if not self.db.execute(
            "SELECT 1 FROM sessions WHERE workspace = ? AND session = ? AND json_extract(anchor, '$.reset_count') > 0",
            key,
        ).fetchone():
            return 0
        resets: list[int] = []
        kinds = (Kind.RESET, Kind.RESET_UNDONE)
        for row in select(
            self.db,
            "SELECT sequence, kind FROM timeline WHERE workspace = ? AND session = ? AND kind IN (?, ?) ORDER BY sequence",
            (*key, *kinds),
        ):
            if row["kind"] == Kind.RESET:
                resets.append(row["sequence"])
            elif resets:
                resets.pop()
        return resets[-1] if resets else 0

    def mark(self, row: Row) -> dict[str, Any]:
        """``in_prompt`` for a row of a run; empty for any other row."""
        run_id = row["run_id"]
        return {} if run_id is None else {"in_prompt": self.of(run_id)}

    def of(self, run_id: int) -> InPrompt:
        """How the session's last request showed a turn."""
        if run_id not in self._marks:
            self._marks[run_id] = self._of(run_id)
        return self._marks[run_id]

    def _of(self, run_id: int) -> InPrompt:
        last_run, rung, through = self._last
        turns = select(
            self.db,
            "SELECT sequence, outcome FROM turns WHERE workspace = ? AND session = ? AND run_id = ?",
            (self.workspace, self.session, run_id),
        )
        if turns and turns[0]["sequence"] < self._reset_at:
            return "archived"
        if run_id <= through:
            return "summary"
        old = run_id < last_run - RECENT_TURNS
        skipped = old and rung >= Rung.FOLDED and bool(turns) and turns[0]["outcome"] == "no_action"
        if skipped and self._is_without_actions(run_id):
            return "skipped"
        return "shortened" if run_id in self._shortened else "whole"

    def _is_without_actions(self, run_id: int) -> bool:
        key = (self.workspace, self.session, run_id)
        call = self.db.execute(
            "SELECT 1 FROM steps WHERE workspace = ? AND session = ? AND run_id = ? AND calls > 0 LIMIT 1",
            key,
        ).fetchone()
        message = self.db.execute(
            "SELECT 1 FROM items WHERE workspace = ? AND session = ? AND run_id = ? AND type = 'message' AND role = 'user'"
            " AND json_extract(content, '$.kind') = 'message' LIMIT 1",
            key,
        ).fetchone()
        return call is None and message is None
