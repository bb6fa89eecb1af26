"""The verbs `fleet status`, `fleet jobs add` and `fleet kill`, plugged into the command line by entry point."""

from __future__ import annotations

from typing import Annotated

import typer
from anchorwatch.cli.plugin import BUS, Cli, noun, verb


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    fleet = noun(app, "fleet", "Show the local fleet, queue jobs, or kill an instance.")
    verb(fleet, uses=BUS)(status)
    verb(fleet, uses=BUS)(kill)
    verb(noun(fleet, "jobs", "Change the work queue of the fleet."), uses=BUS)(add)


def status(cli: Cli) -> None:
    """Show demand, capacity, and every instance."""
    from anchorwatch_fleet import cli as fleet

    found = cli.with_bus(fleet.status)
    cli.say(found, *fleet.render_status(found).splitlines())


def add(cli: Cli, count: Annotated[int, typer.Argument(metavar="N", help="Number of jobs.", min=1)]) -> None:
    """Queue N jobs: certificates of primality, 0.05 to 1 s of CPU each."""
    from anchorwatch_fleet import cli as fleet

    ids = cli.with_bus(lambda bus: fleet.add_jobs(bus, count))
    cli.say({"jobs": ids}, fleet.render_added(ids))


def kill(
    cli: Cli, ident: Annotated[str, typer.Argument(metavar="ID", help="An instance of `fleet status`.")]
) -> None:
    """Kill the process of an instance (signal 9)."""
    from anchorwatch_fleet import cli as fleet

    killed = cli.with_bus(lambda bus: fleet.kill(bus, ident))
    cli.say(killed, fleet.render_killed(killed))
