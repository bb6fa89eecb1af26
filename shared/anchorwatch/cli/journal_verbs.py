"""Verbs about a session's journal."""

from __future__ import annotations

import typer

from anchorwatch.cli.options import DataDirOption, JsonOption, SessionArgument, TokenOption, UrlOption

JOURNAL = typer.Typer(rich_markup_mode=None, help="Verify a session's journal.")
DAMAGED = 1


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    app.add_typer(JOURNAL, name="journal")


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
