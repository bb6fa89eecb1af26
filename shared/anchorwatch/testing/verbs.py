"""The verbs `demo` and `crash-test`, plugged into the command line by entry point."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from anchorwatch.cli.plugin import NOTHING, Cli, verb
from anchorwatch.core.errors import NotInstalled

Keep = Annotated[bool, typer.Option("--keep", help="Keep the data directory, and print its path.")]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="Seed of the first run.", show_default="random", min=0),
]


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    verb(app, uses=NOTHING)(demo)
    # Its own --data-dir is where its meshes are kept.
    verb(app, "crash-test", NOTHING, without="data_dir")(crash_test)


def demo(cli: Cli, *, keep: Keep = False, seed: Seed = None) -> int:
    """Run a self-checking incident on real processes. About a minute."""
    if find_spec("anchorwatch_fleet") is None:
        raise NotInstalled("the fleet pack, which the demo runs on,", "testing")
    from anchorwatch.testing.demo import run

    return run(as_json=cli.as_json, keep=keep, seed=seed)


def crash_test(
    cli: Cli,
    *,
    pack: Annotated[
        str | None, typer.Option("--pack", metavar="NAME", help="An installed pack.", show_default="fleet")
    ] = None,
    agent: Annotated[
        Path | None, typer.Option("--agent", metavar="FILE", help="File of an agent, instead of --pack.")
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", help="Number of seeds.", min=1, max=10_000)
    ] = 3,
    seed: Seed = None,
    directory: Annotated[
        Path | None,
        typer.Option("--data-dir", metavar="DIR", help="Keep the meshes in this empty directory."),
    ] = None,
    keep: Keep = False,
) -> int:
    """Kill a mesh at every durable edge and count results. A minute a seed."""
    from anchorwatch.testing.crash_test.run import Options, run

    return run(Options(pack, agent, seeds, seed, directory, keep, cli.as_json))
