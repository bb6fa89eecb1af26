"""Options that many verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anchorwatch.core.errors import BadInput

DataDirOption = Annotated[
    Path | None,
    typer.Option("--data-dir", help="The mesh's data directory.", metavar="DIR", show_default=".anchorwatch"),
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", help="HTTP API of a mesh elsewhere, in place of --data-dir.", metavar="URL"),
]
TokenOption = Annotated[
    str | None,
    typer.Option("--token", help="Bearer token for --url (or ANCHORWATCH_TOKEN).", metavar="TOKEN"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LimitOption = Annotated[int, typer.Option("--limit", help="Show at most so many.", min=1, max=100_000)]
SessionArgument = Annotated[
    str, typer.Argument(metavar="SESSION", help="The session's name.", show_default=False)
]


def refuse_before(verb: str, *given: object) -> None:
    """Refuse options that stand before a verb of a group, where they would be lost: the verb has its own.

    Raises:
        BadInput: there are some.
    """
    if any(given):
        raise BadInput("options stand in the wrong place", hint=f"put them behind `{verb}`")
