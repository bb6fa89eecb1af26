"""What a session's model calls used, day by day."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from anchorwatch.core.agents import RULES
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session.events import StepHead
from anchorwatch.core.session.spending import DAY_MS, Tokens, used


def of_step(db: sqlite3.Connection, ref: SessionRef, head: StepHead, at_ms: int) -> None:
    """Enter a step's model call. Rules use nothing; what was not reported counts as it was counted."""
    if head.prompt is not None and head.prompt.model != RULES:
        _add(
            db,
            ref,
            used(head.usage, head.prompt.tokens),
            head.observation.at_ms if head.observation else at_ms,
        )


def of_summary(db: sqlite3.Connection, ref: SessionRef, usage: Mapping[str, Any], at_ms: int) -> None:
    """Enter the call for a summary; one from the records cost nothing."""
    if usage:
        _add(db, ref, used(usage, 0), at_ms)


def _add(db: sqlite3.Connection, ref: SessionRef, tokens: Tokens, at_ms: int) -> None:
    db.execute(
        "INSERT INTO spending VALUES (?, ?, ?, 1, ?, ?, ?) ON CONFLICT DO UPDATE SET calls = calls + 1,"
        " prompt = prompt + excluded.prompt, completion = completion + excluded.completion, micros = micros + excluded.micros",
        (ref.workspace, ref.session, at_ms // DAY_MS, tokens.prompt, tokens.completion, tokens.micros),
    )
