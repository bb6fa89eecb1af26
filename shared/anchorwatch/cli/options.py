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
SessionOption = Annotated[
    str | None, typer.Option("--session", metavar="SESSION", help="Of this session only.")
]
StateOption = Annotated[str | None, typer.Option("--state", metavar="STATE", help="In this state only.")]
SessionArgument = Annotated[
    str, typer.Argument(metavar="SESSION", help="The session's name.", show_default=False)
]


SPEAK_TO_THE_BUS = ("fleet", "doctor")
ABOUT_NO_MESH = ("serve", "demo", "crash-test", "config", "version", "models probe")


def takes_no_address(verb: str, option: str) -> BadInput:
    """Why ``verb`` (empty: the program itself) has no ``option``, which others have to name a mesh elsewhere."""
    group = verb.partition(" ")[0]
    if not group:
        return BadInput(f"{option} stands in the wrong place", hint="put it behind the verb")
    if group in SPEAK_TO_THE_BUS:
        return BadInput(
            f"`{verb}` takes no {option}: it speaks to NATS, not to the HTTP API",
            hint="--data-dir DIR; for a mesh elsewhere ANCHORWATCH_NATS_URL, _NATS_USER and _NATS_PASSWORD",
        )
    if group in ABOUT_NO_MESH or verb in ABOUT_NO_MESH:
        return BadInput(f"`{verb}` takes no {option}: it is about no running mesh", hint="leave it out")
    return BadInput(
        f"`{verb}` takes no {option}: it is about a mesh on this machine",
        hint="run it where the mesh runs, with --data-dir DIR",
    )


def refuse_before(verb: str, *given: object) -> None:
    """Refuse options that stand before a verb of a group, where they would be lost: the verb has its own.

    Raises:
        BadInput: there are some.
    """
    if any(given):
        raise BadInput("options stand in the wrong place", hint=f"put them behind `{verb}`")
