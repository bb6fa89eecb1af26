"""Verbs on the journal of a session: verify it, and repair it."""

from __future__ import annotations

from typing import Any

import typer

from anchorwatch.cli.integrity_views import show_examination, show_plan
from anchorwatch.cli.verb import APP, Cli, DryRun, Note, Session, Yes, confirm, noun, session_path, verb
from anchorwatch.core.errors import Refused

DAMAGED = 1

JOURNAL = noun(APP, "journal", "Verify the journal of a session.")


@verb(JOURNAL)
def verify(cli: Cli, session: Session) -> int:
    """Check every record of a session; exit 1 on damage that is not accepted."""
    found = cli.api.get(session_path(session, "verify"))
    if cli.as_json:
        cli.json(found)
    else:
        show_examination(found)
    return 0 if found["whole"] else DAMAGED


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
