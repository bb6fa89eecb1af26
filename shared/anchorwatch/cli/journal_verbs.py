"""Verbs on the journal: verify that of a session, repair it, accept a loss of its end."""

from __future__ import annotations

from typing import Any

import typer

from anchorwatch.cli.integrity_views import show_examination, show_loss, show_plan
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
        show_examination(found)
    return 0 if found["whole"] else DAMAGED


@verb(JOURNAL)
def accept(cli: Cli, *, dry_run: DryRun = False, yes: Yes = False, note: Note = "") -> None:
    """List what the journal lost at its end, ask, and accept it."""
    loss: dict[str, Any] = cli.api.get("/api/journal")
    if not cli.as_json:
        show_loss(loss)
    if dry_run or not loss["held"]:
        if cli.as_json:
            cli.json(loss)
        return
    if not yes:
        if not typer.get_text_stream("stdin").isatty():
            raise Refused("an acceptance needs a confirmation", hint="look with --dry-run, then give --yes")
        confirm("Accept this loss?")
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
        show_plan(plan)
    if dry_run:
        return
    if not yes:
        if not typer.get_text_stream("stdin").isatty():
            raise Refused("a repair needs a confirmation", hint="look with --dry-run, then give --yes")
        confirm(f"Repair {session} so?")
    done = cli.api.post(path, {"plan": plan["plan"], "note": note})
    cli.say(done, f"{session} repaired by {done['by']} (journal sequence {done['sequence']})")
