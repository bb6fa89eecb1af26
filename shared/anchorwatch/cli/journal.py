"""Verbs on the journal: verify that of a session, repair it, accept a loss of its end."""

from __future__ import annotations

from typing import Any

import typer

from anchorwatch.cli.render import Output, Row, local_time, one_line
from anchorwatch.cli.verb import APP, Cli, DryRun, Note, Session, Yes, confirm, noun, session_path, verb
from anchorwatch.core.errors import Refused

DAMAGED = 1

JOURNAL = noun(APP, "journal", "Verify a session's journal, or accept a loss.")


@verb(JOURNAL)
def verify(cli: Cli, session: Session) -> int:
    """Check every record of a session; exit 1 on damage that is not accepted."""
    found = cli.api.get(session_path(session, "verify"))
    if cli.as_json:
        cli.json(found)
    else:
        _show_examination(found)
    return 0 if found["whole"] else DAMAGED


@verb(JOURNAL)
def accept(cli: Cli, *, dry_run: DryRun = False, yes: Yes = False, note: Note = "") -> None:
    """List what the journal lost at its end, ask, and accept it."""
    loss: dict[str, Any] = cli.api.get("/api/journal")
    if not cli.as_json:
        _show_loss(loss)
    if dry_run or not loss["held"]:
        if cli.as_json:
            cli.json(loss)
        return
    if not yes:
        _confirm("Accept this loss?")
    body, done = {"plan": loss["plan"], "note": note}, {"left": 1}
    while done["left"]:
        # Each request repairs as many sessions as one may take.
        done = cli.api.post("/api/journal/accept", body)
    cli.say(
        done,
        f"loss accepted by {done['by']} (journal sequence {done['sequence']}); turns and commands start again",
    )


@verb(APP)
def repair(cli: Cli, session: Session, *, dry_run: DryRun = False, yes: Yes = False, note: Note = "") -> None:
    """Show the repair of a damaged journal, ask, and carry it out."""
    path = session_path(session, "repair")
    plan: dict[str, Any] = cli.api.get(path)
    if dry_run and cli.as_json:
        cli.json(plan)
        return
    if not cli.as_json:
        _show_plan(plan)
    if dry_run:
        return
    if not yes:
        _confirm(f"Repair {session} as shown?")
    done = cli.api.post(path, {"plan": plan["plan"], "note": note})
    cli.say(done, f"{session} repaired by {done['by']} (journal sequence {done['sequence']})")


def _confirm(question: str) -> None:
    """Ask a person at a terminal: an answer from a pipe does not count.

    Raises:
        Refused: there is no terminal, or the answer was no.
    """
    if not typer.get_text_stream("stdin").isatty():
        raise Refused("a person must confirm this", hint="look with --dry-run, then give --yes")
    confirm(question)


# ------------------------------------------------------------ as text


def _show_examination(found: Row) -> None:
    """Print each finding with its consequence, each repair, and a summary."""
    for finding in found["findings"]:
        _show_finding(finding)
        accepted = finding["accepted_at"]
        Output.lines(
            f"    {finding['consequence']}" + (f"; accepted by the repair at {accepted}" if accepted else "")
        )
    for repair in found["repairs"]:
        note = f": {one_line(repair['note'])}" if repair["note"] else ""
        Output.lines(
            f"repaired at {repair['sequence']} by {one_line(repair['by'])}, {local_time(repair['at'])}{note}"
        )
    Output.lines(_summary(found))


def _show_finding(finding: Row) -> None:
    """Print a finding: its place and what is wrong."""
    first, through = finding["sequence"], finding["through"]
    where = f"sequence {first}" if first == through else f"sequences {first} to {through}"
    register = f" ({finding['register']})" if finding["register"] else ""
    Output.lines(f"{where}{register}: {finding['trouble']}: {one_line(finding['what'])}")


def _summary(found: Row) -> str:
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


def _show_plan(plan: Row) -> None:
    """Print the effect of a repair: on each finding, then on the session."""
    for remedy in plan["remedies"]:
        _show_finding(remedy)
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


def _show_loss(loss: Row) -> None:
    """What the journal lost at its end, whom it concerns, and what accepting it means."""
    if not loss["held"]:
        if accepted := loss["accepted"]:
            Output.lines(f"accepted by {one_line(accepted['by'])}, {local_time(accepted['at'])}")
        Output.lines("there is no hold: the journal has no loss to accept")
        return
    for gap in loss["gaps"]:
        end = "" if gap["end_known"] else "; its end is unknown"
        Output.lines(
            f"sequences {gap['first']} to {gap['through']} are lost, found by {gap['found_by']}{end}"
        )
        for record in gap["records"]:
            Output.lines(f"    {_lost(record)}")
        if gap["unlisted"]:
            Output.lines(f"    {gap['unlisted']} of them are unknown")
    for each in loss["sessions"]:
        Output.lines(
            f"{each['session']} ({each['workspace']}) may have lost records: its turn ends failed, and what it may"
        )
        Output.lines("    have begun is unknown; inputs that such a turn may have taken are not run again")
    for each in loss["sessions_gone"]:
        Output.lines(f"{each['session']} ({each['workspace']}) is lost: it was created there")


def _lost(record: Row) -> str:
    command = record.get("command")
    acts = ""
    if command:
        on = f" on {one_line(command['resource'])}" if command["resource"] else ""
        acts = f": {one_line(command['tool'])}{on}"
    return f"{record['sequence']} {record['workspace']}/{record['session']} {record['register']}{acts}"
