"""The verbs `fleet status`, `fleet jobs add` and `fleet kill`, plugged into the command line by entry point."""

from __future__ import annotations

from typing import Annotated

import typer
from anchorwatch.cli.plugin import DataDirOption, JsonOption, say, with_bus

FLEET = typer.Typer(
    no_args_is_help=False, rich_markup_mode=None, help="Show the local fleet, queue jobs, kill instances."
)
JOBS = typer.Typer(no_args_is_help=False, rich_markup_mode=None, help="The fleet's work queue.")


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    FLEET.add_typer(JOBS, name="jobs")
    app.add_typer(FLEET, name="fleet")


@FLEET.command("status")
def fleet_status(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:  # noqa: FBT002 - a flag of the command line
    """Show demand, capacity, and a line for each instance."""
    from anchorwatch_fleet import cli

    told = with_bus(data_dir, cli.status)
    say(told, cli.render_status(told), as_json=as_json)


@JOBS.command("add")
def jobs_add(
    count: Annotated[int, typer.Argument(metavar="N", help="How many.", min=1)],
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
) -> None:
    """Queue N jobs: certificates of primality, 0.05 to 1 s of CPU each."""
    from anchorwatch_fleet import cli

    ids = with_bus(data_dir, lambda bus: cli.add_jobs(bus, count))
    say({"jobs": ids}, cli.render_added(ids), as_json=as_json)


@FLEET.command("kill")
def fleet_kill(
    ident: Annotated[str, typer.Argument(metavar="ID", help="An instance, as `fleet status` shows it.")],
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
) -> None:
    """Kill an instance's process (signal 9), to see what the agent does."""
    from anchorwatch_fleet import cli

    told = with_bus(data_dir, lambda bus: cli.kill(bus, ident))
    say(told, cli.render_killed(told), as_json=as_json)
