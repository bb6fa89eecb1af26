"""Turns: a page of them, and one with its inputs, steps and calls."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from anchorwatch.core.errors import NotFound

from anchorwatch_memory.reads import show
from anchorwatch_memory.reads.lists import Result, in_session, last_words, run_of, session_row
from anchorwatch_memory.reads.pages import Listing, Row, Where, fit, page, read_window, select
from anchorwatch_memory.reads.params import TURN_STATUSES, Params, one_of, required
from anchorwatch_memory.reads.prompt_marks import PromptMarks


def turns(db: sqlite3.Connection, params: Params) -> Result:
    """A page of a session's turns, each with the totals of its steps."""
    of_session = in_session(db, params)
    marks = PromptMarks(db, str(of_session["workspace"]), str(of_session["session"]))

    def shown(row: Row) -> dict[str, Any]:
        return {**show.turn(row), **marks.mark(row), **_sums(db, row)}

    listing = Listing("turns", "turns", "sequence", shown)
    where = Where({**of_session, "status": one_of(params, "status", TURN_STATUSES)})
    return page(db, listing, where, read_window(params))


def turn(db: sqlite3.Connection, params: Params) -> Result:
    """One turn, by its id or its run number, with its inputs, steps, calls and their outcomes.

    Raises:
        NotFound: the session or the turn does not exist.
    """
    session = session_row(db, params)
    key = (
        session["workspace"],
        session["session"],
        run_of(db, session["workspace"], session["session"], required(params, "turn")),
    )
    row = _of_run(db, "turns", key)[0]
    inputs = [show.wake(each) for each in _of_run(db, "inputs", key)]
    effects = [show.effect(each) for each in _of_run(db, "effects", key)]
    steps = []
    for each in _of_run(db, "steps", key):
        prefix = f"{row['session']}/{row['run_id']}.{each['step']}."
        calls = [effect for effect in effects if effect["call"].startswith(prefix)]
        steps.append({**show.step(each), "calls": calls})
    mark = PromptMarks(db, session["workspace"], session["session"]).mark(row)
    whole = {**show.turn(row), **mark, **_sums(db, row), "inputs": inputs, "steps": steps}
    return fit(whole)[0]


def of_input(db: sqlite3.Connection, params: Params) -> Result:
    """An input or order by its sequence, its disposition, and the last words of the turn that handled it.

    Raises:
        NotFound: the session or the input does not exist.
    """
    session, sequence = session_row(db, params), params.get("sequence")
    key = (session["workspace"], session["session"])
    rows = select(
        db, "SELECT * FROM wakes WHERE workspace = ? AND session = ? AND sequence = ?", (*key, sequence)
    )
    if not rows:
        raise NotFound(
            f"session {session['session']} has no input at sequence {sequence}",
            hint=f"`anchorwatch wakes {session['session']}` lists them",
        )
    run_id = rows[0]["run_id"]
    turn_rows = _of_run(db, "turns", (*key, run_id)) if run_id is not None else []
    return fit(
        {
            **show.wake(rows[0]),
            "turn": show.turn(turn_rows[0]) if turn_rows else None,
            "answer": last_words(db, (*key, run_id)) if turn_rows else None,
        }
    )[0]


def _sums(db: sqlite3.Connection, row: Row) -> dict[str, Any]:
    """The numbers of steps and inputs of a turn, its usage, and the proof of its last prompt."""
    key = (row["workspace"], row["session"], row["run_id"])
    prompt = None
    steps = _of_run(db, "steps", key)
    for each in steps:
        prompt = json.loads(each["prompt"]) if each["prompt"] else prompt
    inputs = db.execute(
        "SELECT count(*) FROM inputs WHERE workspace = ? AND session = ? AND run_id = ?", key
    ).fetchone()[0]
    return {
        "steps_count": len(steps),
        "inputs_count": inputs,
        "usage": show.usage_of_run(db, key),
        "prompt": prompt,
    }


def _of_run(db: sqlite3.Connection, table: str, key: tuple[str, str, int]) -> list[Row]:
    """The rows of one run, in journal order."""
    sql = f"SELECT * FROM {table} WHERE workspace = ? AND session = ? AND run_id = ? ORDER BY sequence"  # noqa: S608 - our own tables
    return select(db, sql, key)
