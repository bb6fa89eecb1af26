"""The verbs `demo` and `crash-test`, plugged into the command line by entry point."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anchorwatch.cli.options import JsonOption


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    for verb in (demo, crash_test):
        app.command()(verb)


def demo(
    as_json: JsonOption = False,  # noqa: FBT002
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data directory, and say where.")] = False,  # noqa: FBT002
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Chance as in the run that printed it.", min=0)
    ] = None,
) -> int:
    """Play the incident on real processes, checking itself; exit 1 if a promise is broken. About a minute."""
    from anchorwatch.testing.demo import run

    return run(as_json=as_json, keep=keep, seed=seed)


def crash_test(
    pack: Annotated[
        str | None,
        typer.Option("--pack", metavar="NAME", help="An installed pack; the fleet, if nothing is named."),
    ] = None,
    agent: Annotated[
        Path | None, typer.Option("--agent", metavar="FILE", help="An agent's file, and so its pack.")
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", help="How many seeds.", min=1, max=10_000)
    ] = 3,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="The first seed; by chance, if not given.", min=0),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir", metavar="DIR", help="An empty directory for its meshes, which are kept there."
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data, and say where.")] = False,  # noqa: FBT002
    as_json: JsonOption = False,  # noqa: FBT002
) -> int:
    """Kill a mesh of its own at every durable edge, and count what came of it; exit 1 if a promise is broken. A minute a seed."""
    from anchorwatch.testing.crash_test import running

    return running.run(running.Wish(pack, agent, seeds, seed, data_dir, keep, as_json))
