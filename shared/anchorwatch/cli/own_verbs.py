"""The verbs `doctor` and `config`."""

from __future__ import annotations

from typing import Annotated

import typer

from anchorwatch.cli.options import DataDirOption, JsonOption

MarkdownOption = Annotated[bool, typer.Option("--markdown", help="As in docs/settings.md.", hidden=True)]
FixOption = Annotated[bool, typer.Option("--fix", help="Have sessions looked at that nothing would wake.")]


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    for verb in (doctor, config):
        app.command()(verb)


def doctor(
    data_dir: DataDirOption = None,
    fix: FixOption = False,  # noqa: FBT002
    as_json: JsonOption = False,  # noqa: FBT002
) -> int:
    """Check this installation and its mesh; exit 1 if a check fails."""
    from anchorwatch.cli import doctor as verb

    return verb.run(data_dir, fix=fix, as_json=as_json)


def config(
    as_json: JsonOption = False,  # noqa: FBT002
    markdown: MarkdownOption = False,  # noqa: FBT002
) -> None:
    """Show every setting, its value, where it comes from, and what it does."""
    from anchorwatch.cli import config as verb

    verb.run(as_json=as_json, markdown=markdown)
