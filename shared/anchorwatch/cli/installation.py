"""Verbs on this installation: its checks, its settings, its version."""

from __future__ import annotations

from typing import Annotated

import typer

from anchorwatch.cli.verb import APP, BUS, NOTHING, PROGRAM, Cli, verb


@verb(APP, uses=BUS)
def doctor(
    cli: Cli,
    *,
    fix: Annotated[bool, typer.Option("--fix", help="Wake sessions that have no scheduled wake-up.")] = False,
) -> int:
    """Check this installation and its mesh; exit 1 if a check fails."""
    from anchorwatch.cli import doctor as checks

    return checks.run(cli.data_dir, fix=fix, as_json=cli.as_json)


@verb(APP, uses=NOTHING)
def config(
    cli: Cli,
    *,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table of docs/settings.md.", hidden=True)
    ] = False,
) -> None:
    """Show every setting with its value, source and meaning."""
    from anchorwatch.cli import config as settings

    settings.run(as_json=cli.as_json, markdown=markdown)


@verb(APP, uses=NOTHING)
def version(cli: Cli) -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    number = installed(PROGRAM)
    cli.say({"version": number}, f"{PROGRAM} {number}")
