"""Verbs on agents: list, show and define them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anchorwatch.cli.render import Column
from anchorwatch.cli.verb import APP, Cli, noun, verb

PATH = "/api/agents"
COLUMNS = (
    Column("agent", "name"),
    Column("version"),
    Column("pack"),
    Column("model"),
    Column("heartbeat", "heartbeat_s"),
    Column("description"),
)

AGENTS = noun(APP, "agents", "List, show or define agents.")


@verb(AGENTS, "list")
def list_agents(cli: Cli) -> None:
    """List the agents."""
    cli.rows(cli.api.all(PATH), COLUMNS, "no agents")


@verb(AGENTS)
def show(
    cli: Cli, name: Annotated[str, typer.Argument(metavar="NAME", help="The agent, or NAME@VERSION.")]
) -> None:
    """Show the definition of an agent."""
    from anchorwatch.cli import agent_files

    cli.fields(cli.api.get(f"{PATH}/{agent_files.check_address(name)}"))


@verb(AGENTS)
def apply(
    cli: Cli,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML file with name, pack, model, grants, …")],
) -> None:
    """Define an agent; a changed definition becomes its next version."""
    from anchorwatch.cli import agent_files

    spec = agent_files.read(file)
    done = cli.api.put(f"{PATH}/{spec.name}", spec.model_dump(mode="json"))
    cli.say(done, f"agent {done['name']} is at version {done['version']}")
