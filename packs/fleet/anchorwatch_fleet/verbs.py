"""The verbs `fleet status`, `fleet jobs add` and `fleet kill`, plugged into the command line by entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from anchorwatch.cli.plugin import BUS, Cli, noun, verb

if TYPE_CHECKING:
    from anchorwatch_fleet.config import FleetConfig


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    fleet = noun(app, "fleet", "Show the local fleet, queue jobs, or kill an instance.")
    verb(fleet, uses=BUS)(status)
    verb(fleet, uses=BUS)(kill)
    verb(noun(fleet, "jobs", "Change the work queue of the fleet."), uses=BUS)(add)


def status(cli: Cli) -> None:
    """Show demand, capacity, and every instance."""
    from anchorwatch_fleet import cli as fleet

    config = _config_in_force(cli)
    found = cli.with_bus(lambda bus: fleet.status(bus, config))
    note = ["The limit is the pack's default: the HTTP API does not answer for the agent's own."] * (
        not config
    )
    cli.say(found, *fleet.render_status(found).splitlines(), *note)


def _config_in_force(cli: Cli) -> FleetConfig | None:
    """The settings of the agent whose session works on the fleet, in the version that its next turn uses.

    None: the API does not answer. The pack's defaults: there is no such session.
    """
    from anchorwatch.packs import AgentSpec, NotFound, Unavailable

    from anchorwatch_fleet.config import SESSION, FleetConfig, fleet_config

    try:
        agent = str(cli.api.get(f"/api/sessions/{SESSION}")["agent"]).partition("@")[0]
        return fleet_config(AgentSpec.model_validate(cli.api.get(f"/api/agents/{agent}")))
    except NotFound:
        return FleetConfig()
    except Unavailable:
        return None


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
