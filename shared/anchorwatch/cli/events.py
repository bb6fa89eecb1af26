"""Verbs on what enters and leaves the mesh: events and notifications."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer

from anchorwatch.cli import holding
from anchorwatch.cli.render import Column
from anchorwatch.cli.verb import APP, Cli, Limit, OfSession, OfState, noun, verb

COLUMNS = (
    Column("delivery", "delivery_id"),
    Column("session"),
    Column("channel"),
    Column("state"),
    Column("claims"),
    Column("last", "last_at"),
    Column("title"),
    Column("error"),
)

DELIVERIES = noun(APP, "deliveries", "List the notifications that were sent.")


@verb(DELIVERIES, "list")
def list_deliveries(
    cli: Cli, *, session: OfSession = None, state: OfState = None, limit: Limit = 100
) -> None:
    """List the notifications that were sent, newest last."""
    found = cli.api.pages("/api/deliveries", limit, newest=True, session=session, state=state)
    cli.rows(found, COLUMNS, "no notifications sent")


@verb(APP)
def publish(
    cli: Cli,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Source of the event, such as fleet.")],
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="Type of the event, such as instance.dead.")],
    *,
    data: Annotated[str, typer.Option("--data", metavar="JSON", help="Data of the event.")] = "{}",
    priority: Annotated[
        str | None,
        typer.Option(
            "--priority",
            metavar="P",
            help="P0, P1 or P2.",
            show_default="the data's own, else P1",
        ),
    ] = None,
    ident: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Id of the event: repeating it has no further effect."),
    ] = None,
) -> None:
    """Publish an event."""
    from anchorwatch.cli import agent_files

    content = agent_files.parse_json(data)
    own = content.get("priority") if isinstance(content, dict) else None
    body = {"source": source, "type": type_, "data": content, "priority": priority or own or "P1"}
    # Always an id: an event that is sent twice because an answer was lost is then one event.
    body["id"] = ident or f"cli-{secrets.token_hex(12)}"
    done = cli.api.post("/api/events", body)
    again = "; already published before" if done.get("duplicate") else ""
    cli.say(
        done,
        f"published as {done['id']} (EVENTS sequence {done['sequence']}){again}",
        *(f"queued in its sessions: {each}" for each in holding.blocked_by(done)),
    )
