"""What was found in a session's journal, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anchorwatch.cli.show import local_time, one_line

Row = Mapping[str, Any]


def show_examination(found: Row) -> None:
    """Each finding with what follows from it, each repair, and a last line that says whether all is well."""
    for finding in found["findings"]:
        show_finding(finding)
        accepted = finding["accepted_at"]
        print(
            f"    {finding['consequence']}" + (f"; accepted by the repair at {accepted}" if accepted else "")
        )
    for repair in found["repairs"]:
        note = f": {one_line(repair['note'])}" if repair["note"] else ""
        print(
            f"repaired at {repair['sequence']} by {one_line(repair['by'])}, {local_time(repair['at'])}{note}"
        )
    print(summary(found))


def show_finding(finding: Row) -> None:
    """Where, and what."""
    first, through = finding["sequence"], finding["through"]
    where = f"sequence {first}" if first == through else f"sequences {first} to {through}"
    register = f" ({finding['register']})" if finding["register"] else ""
    print(f"{where}{register}: {finding['trouble']}: {one_line(finding['what'])}")


def summary(found: Row) -> str:
    """The last line."""
    session, records = found["session"], found["records"]
    left = sum(finding["accepted_at"] is None for finding in found["findings"])
    if left:
        said = (
            f"{session} is damaged: {left} of its {records} records"
            if left <= records
            else f"{session} is damaged"
        )
        return f"{said}; `anchorwatch repair {session}` shows what can be done"
    state = "" if found["runs"] else f"; it does not run: {found['status']}"
    if found["findings"]:
        return f"{session}: {records} records, whole but for what was accepted{state}"
    return f"{session}: {records} records, whole{state}"


def show_plan(plan: Row) -> None:
    """What a repair would do: each finding with what it will mean, then what becomes of the session."""
    for remedy in plan["remedies"]:
        show_finding(remedy)
        print(f"    {remedy['meaning']}")
    if not plan["restarts"]:
        print(f"{plan['session']} runs; nothing of it changes but what is accepted")
        return
    if plan["ends_turn"]:
        print(
            f"turn {plan['run_id']} ({plan['ends_turn']}) ends failed; none of its commands starts any more"
        )
    for call in plan["unclear"]:
        print(f"{call} is left to a person: `anchorwatch effects {call}`")
    print(f"objectives and constraints are those of the anchor at {plan['anchor_of']}")
    print(f"{plan['session']} goes on behind sequence {plan['behind']}, with run {plan['run_id'] + 1}")
