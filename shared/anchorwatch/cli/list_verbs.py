"""Verbs about what stands across sessions: agents, deliveries, and events to publish."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anchorwatch.cli.options import (
    DataDirOption,
    JsonOption,
    LimitOption,
    SessionOption,
    StateOption,
    TokenOption,
    UrlOption,
    refuse_before,
)

AGENTS = typer.Typer(invoke_without_command=True, rich_markup_mode=None, help="List, show or define agents.")


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    app.add_typer(AGENTS, name="agents")
    for verb in (deliveries, publish):
        app.command()(verb)


@AGENTS.callback()
def agents(
    context: typer.Context,
    as_json: JsonOption = False,  # noqa: FBT002 - a flag of the command line
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """List the agents, or ``show`` or ``apply`` one."""
    if context.invoked_subcommand is None:
        list_agents(as_json, data_dir, url, token)
    else:
        refuse_before(context.invoked_subcommand, as_json, data_dir, url, token)


@AGENTS.command("list")
def list_agents(
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """List the agents."""
    from anchorwatch.cli import columns, views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        found = api.all("/api/agents")
    views.show(found, columns.AGENTS, as_json=as_json, empty="there are no agents")


@AGENTS.command("show")
def show_agent(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The agent, or NAME@VERSION.")],
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Show an agent's definition."""
    from anchorwatch.cli import agent_files, views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        found = api.get(f"/api/agents/{agent_files.check_address(name)}")
    views.tell(found, as_json=as_json)


@AGENTS.command("apply")
def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file: name, pack, model, grants, …")],
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Define an agent; a definition that differs becomes its next version."""
    from anchorwatch.cli import agent_files, views
    from anchorwatch.cli.target import open_api

    spec = agent_files.read(file)
    with open_api(data_dir, url, token) as api:
        made = api.put(f"/api/agents/{spec.name}", spec.model_dump(mode="json"))
    views.say(made, f"agent {made['name']} is at version {made['version']}", as_json=as_json)


def deliveries(
    session: SessionOption = None,
    state: StateOption = None,
    limit: LimitOption = 100,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Show who was told what, the newest last."""
    from anchorwatch.cli import columns, views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        found = api.pages("/api/deliveries", limit, newest=True, session=session, state=state)
    views.show(found, columns.DELIVERIES, as_json=as_json, empty="nobody was told anything yet")


def publish(  # noqa: PLR0913, PLR0917 - options of the command line
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Where it happened, such as fleet.")],
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="What happened, such as instance.dead.")],
    data: Annotated[str, typer.Option("--data", metavar="JSON", help="What there is to say of it.")] = "{}",
    priority: Annotated[
        str | None,
        typer.Option("--priority", metavar="P", help="P0, P1 or P2; else what the data say, else P1."),
    ] = None,
    ident: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Its own id: sent again, it is the same.")
    ] = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Publish an event."""
    import secrets

    from anchorwatch.cli import agent_files, views
    from anchorwatch.cli.target import open_api

    # An id in any case: what is sent twice, because an answer was lost, is then one event.
    content = agent_files.parse_json(data)
    said = content.get("priority") if isinstance(content, dict) else None
    body = {"source": source, "type": type_, "data": content, "priority": priority or said or "P1"}
    body["id"] = ident or f"cli-{secrets.token_hex(12)}"
    with open_api(data_dir, url, token) as api:
        told = api.post("/api/events", body)
    again = "; it had been published before" if told.get("duplicate") else ""
    text = f"published as {told['id']} (EVENTS sequence {told['sequence']}){again}"
    views.say(told, "\n".join((text, *views.waits(told, " in sessions that it goes to"))), as_json=as_json)
