"""Damage of a session's journal, and its repair, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anchorwatch.cli.render import Output, local_time, one_line

Row = Mapping[str, Any]


def show_examination(found: Row) -> None:
    """Print each finding with its consequence, each repair, and a summary."""
    for finding in found["findings"]:
        show_finding(finding)
        accepted = finding["accepted_at"]
        Output.lines(
            f"    {finding['consequence']}" + (f"; accepted by the repair at {accepted}" if accepted else "")
        )
    for repair in found["repairs"]:
        note = f": {one_line(repair['note'])}" if repair["note"] else ""
        Output.lines(
            f"repaired at {repair['sequence']} by {one_line(repair['by'])}, {local_time(repair['at'])}{note}"
        )
    Output.lines(summary(found))


def show_finding(finding: Row) -> None:
    """Print a finding: its place and what is wrong."""
    first, through = finding["sequence"], finding["through"]
    where = f"sequence {first}" if first == through else f"sequences {first} to {through}"
    register = f" ({finding['register']})" if finding["register"] else ""
    Output.lines(f"{where}{register}: {finding['trouble']}: {one_line(finding['what'])}")


def summary(found: Row) -> str:
    """One line on the state of the journal."""
    session, records = found["session"], found["records"]
    left = sum(finding["accepted_at"] is None for finding in found["findings"])
    if left:
        said = (
            f"{session} is damaged: {left} of its {records} records"
            if left <= records
            else f"{session} is damaged"
        )
        return f"{said}; `anchorwatch repair {session}` shows what can be done"
    state = "" if found["runs"] else f"; stopped: {found['status']}"
    if found["findings"]:
        return f"{session}: {records} records, whole except for accepted damage{state}"
    return f"{session}: {records} records, whole{state}"


def show_plan(plan: Row) -> None:
    """Print the effect of a repair: on each finding, then on the session."""
    for remedy in plan["remedies"]:
        show_finding(remedy)
        Output.lines(f"    {remedy['meaning']}")
    if not plan["restarts"]:
        Output.lines(f"{plan['session']} runs; the repair only records what is accepted")
        return
    if plan["ends_turn"]:
        Output.lines(
            f"turn {plan['run_id']} ({plan['ends_turn']}) ends failed; none of its commands will start"
        )
    for call in plan["unclear"]:
        Output.lines(f"{call} needs a person: `anchorwatch effects {call}`")
    Output.lines(f"objectives and constraints: from the anchor at {plan['anchor_of']}")
    Output.lines(
        f"{plan['session']} continues after sequence {plan['behind']}, with run {plan['run_id'] + 1}"
    )


def show_loss(loss: Row) -> None:
    """What the journal lost at its end, whom it concerns, and what accepting it means."""
    if not loss["held"]:
        if accepted := loss["accepted"]:
            Output.lines(f"accepted by {one_line(accepted['by'])}, {local_time(accepted['at'])}")
        Output.lines("nothing is held: the journal has no loss that waits to be accepted")
        return
    for gap in loss["gaps"]:
        end = "" if gap["end_known"] else "; how far it reached beyond is not known"
        Output.lines(
            f"sequences {gap['first']} to {gap['through']} are lost, found by {gap['found_by']}{end}"
        )
        for record in gap["records"]:
            Output.lines(f"    {_lost(record)}")
        if gap["unlisted"]:
            Output.lines(f"    of {gap['unlisted']} of them nothing is known")
    for each in loss["sessions"]:
        Output.lines(
            f"{each['session']} ({each['workspace']}) may have lost records: its turn ends failed, and what it may"
        )
        Output.lines("    have begun is unknown; inputs that such a turn may have taken are not run again")
    for each in loss["sessions_gone"]:
        Output.lines(f"{each['session']} ({each['workspace']}) is gone: it was made there")


def _lost(record: Row) -> str:
    command = record.get("command")
    acts = ""
    if command:
        on = f" on {one_line(command['resource'])}" if command["resource"] else ""
        acts = f": {one_line(command['tool'])}{on}"
    return f"{record['sequence']} {record['workspace']}/{record['session']} {record['register']}{acts}"
