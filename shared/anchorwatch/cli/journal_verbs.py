"""Verbs about a session's journal."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from anchorwatch.cli.asking import ask
from anchorwatch.cli.options import DataDirOption, JsonOption, SessionArgument, TokenOption, UrlOption
from anchorwatch.core.errors import Refused

JOURNAL = typer.Typer(rich_markup_mode=None, help="Verify a session's journal.")
DAMAGED = 1
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    app.add_typer(JOURNAL, name="journal")
    app.command()(repair)


@JOURNAL.callback()
def journal() -> None:
    """Verify a session's journal."""


@JOURNAL.command("verify")
def verify(
    session: SessionArgument,
    as_json: JsonOption = False,  # noqa: FBT002 - a flag of the command line
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> int:
    """Read and check every record of a session; 1 when something is wrong that no repair has accepted."""
    from anchorwatch.cli import looking, views
    from anchorwatch.cli.integrity_views import show_examination
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        found = api.get(f"/api/sessions/{looking.name(session)}/verify")
    if as_json:
        views.json_out(found)
    else:
        show_examination(found)
    return 0 if found["whole"] else DAMAGED


def repair(
    session: SessionArgument,
    dry_run: DryRunOption = False,  # noqa: FBT002
    yes: YesOption = False,  # noqa: FBT002
    note: Annotated[
        str, typer.Option("--note", metavar="TEXT", help="What happened; it stands in the journal.")
    ] = "",
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Show what can be done about a damaged journal, ask, and do it."""
    from anchorwatch.cli import looking, views
    from anchorwatch.cli.integrity_views import show_plan
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        path = f"/api/sessions/{looking.name(session)}/repair"
        plan: dict[str, Any] = api.get(path)
        if dry_run and as_json:
            views.json_out(plan)
            return
        if not as_json:
            show_plan(plan)
        if dry_run:
            return
        if not yes:
            _ask(session)
        done = api.post(path, {"plan": plan["plan"], "note": note})
    text = f"{session} is repaired by {done['by']} (journal sequence {done['sequence']})"
    views.say(done, text, as_json=as_json)


def _ask(session: str) -> None:
    if not typer.get_text_stream("stdin").isatty():
        raise Refused("a repair is confirmed by a person", hint="look with --dry-run, then give --yes")
    ask(f"Repair {session} so?")
