"""The other verbs: the fleet pack's own, the demo, the doctor, and the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anchorwatch.cli.options import DataDirOption, JsonOption

MarkdownOption = Annotated[bool, typer.Option("--markdown", help="As in docs/settings.md.", hidden=True)]
FixOption = Annotated[bool, typer.Option("--fix", help="Have sessions looked at that nothing would wake.")]
FLEET = typer.Typer(
    no_args_is_help=False, rich_markup_mode=None, help="Look at the local fleet, give it work, hurt it."
)
JOBS = typer.Typer(no_args_is_help=False, rich_markup_mode=None, help="The fleet's work queue.")


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    FLEET.add_typer(JOBS, name="jobs")
    app.add_typer(FLEET, name="fleet")
    for verb in (demo, crash_test, doctor, config):
        app.command()(verb)


@FLEET.command("status")
def fleet_status(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:  # noqa: FBT002 - a flag of the command line
    """Show demand, capacity, and a line for each instance."""
    from anchorwatch.cli import fleet

    fleet.status(data_dir, as_json=as_json)


@JOBS.command("add")
def jobs_add(
    count: Annotated[int, typer.Argument(metavar="N", help="How many.", min=1)],
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
) -> None:
    """Queue N jobs: certificates of primality, 0.05 to 1 s of CPU each."""
    from anchorwatch.cli import fleet

    fleet.add_jobs(count, data_dir, as_json=as_json)


@FLEET.command("kill")
def fleet_kill(
    ident: Annotated[str, typer.Argument(metavar="ID", help="An instance, as `fleet status` shows it.")],
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
) -> None:
    """Kill an instance's process (signal 9), to see what the agent does."""
    from anchorwatch.cli import fleet

    fleet.kill(ident, data_dir, as_json=as_json)


def demo(
    as_json: JsonOption = False,  # noqa: FBT002
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data directory, and say where.")] = False,  # noqa: FBT002
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Chance as in the run that printed it.", min=0)
    ] = None,
) -> int:
    """Play the incident on real processes, checking itself; exit 1 if a promise is broken. About a minute."""
    from anchorwatch.cli.demo import run

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
    from anchorwatch.cli.crash_test import running

    return running.run(running.Wish(pack, agent, seeds, seed, data_dir, keep, as_json))


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
