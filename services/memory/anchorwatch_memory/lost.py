"""The records after a journal's end that are in the projections: what memory knows, as a witness, of the lost records."""

from __future__ import annotations

import sqlite3

from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.journal.truncation import LostRecord
from anchorwatch.topology.subjects import CLAIM, DONE, SessionSubjects


def records_after(db: sqlite3.Connection, sequence: int) -> list[LostRecord]:
    """The records after ``sequence``, in order, except those of registers without rows of their own."""
    found = [
        LostRecord(at, SessionSubjects(SessionRef(workspace, session)).input(id_))
        for at, workspace, session, id_ in db.execute(
            "SELECT sequence, workspace, session, input_id FROM inputs WHERE sequence > ?", (sequence,)
        )
    ]
    found += [
        LostRecord(at, SessionSubjects(SessionRef(workspace, session)).log)
        for at, workspace, session in db.execute(
            "SELECT sequence, workspace, session FROM steps WHERE sequence > ?", (sequence,)
        )
    ]
    found += [
        LostRecord(at, SessionSubjects(SessionRef(workspace, session)).anchor_turn)
        for at, workspace, session in db.execute(
            "SELECT sequence, workspace, session FROM turns WHERE sequence > ?", (sequence,)
        )
    ]
    found += [
        LostRecord(at, SessionSubjects(SessionRef(workspace, session)).anchor_change)
        for at, workspace, session in db.execute(
            "SELECT ended_sequence, workspace, session FROM turns WHERE ended_sequence > ?"
            " UNION SELECT sequence, workspace, session FROM sessions WHERE sequence > ?",
            (sequence, sequence),
        )
    ]
    effects = db.execute(
        "SELECT sequence, claim_sequence, outcome_sequence, workspace, session, run_id, step, n, pool, tool,"
        " resource, agent FROM effects WHERE max(sequence, ifnull(claim_sequence, 0), ifnull(outcome_sequence, 0)) > ?",
        (sequence,),
    )
    for decided, claimed, ended, workspace, session, run, step, n, pool, tool, resource, agent in effects:
        subjects, call = SessionSubjects(SessionRef(workspace, session)), CallId(run, step, n)
        command = {"call": str(call), "tool": tool, "resource": resource, "agent": agent}
        places = {
            decided: subjects.command(pool),
            claimed: subjects.effect(pool, call, CLAIM),
            ended: subjects.effect(pool, call, DONE),
        }
        found += [LostRecord(at, place, command) for at, place in places.items() if at and at > sequence]
    # The record of a step may be the one of a command too: one sequence is one record.
    return sorted({each.sequence: each for each in found}.values(), key=lambda each: each.sequence)
