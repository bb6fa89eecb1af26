"""Verbs on kill switches: block a session, an agent, a workspace or the whole mesh at once."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from anchorwatch.cli.render import Column
from anchorwatch.cli.verb import APP, Cli, Key, Reason, noun, verb
from anchorwatch.core.errors import BadInput

PATH = "/api/kill-switches"
COLUMNS = (
    Column("of", "scope"),
    Column("name"),
    Column("is", lambda row: "on" if row["on"] else "off"),
    Column("since", "at"),
    Column("by"),
    Column("reason"),
)
OneSession = Annotated[str | None, typer.Option("--session", metavar="SESSION", help="Scope: one session.")]
OneAgent = Annotated[
    str | None, typer.Option("--agent", metavar="AGENT", help="Scope: all sessions of an agent.")
]
Whole = Annotated[bool, typer.Option("--workspace", help="Scope: the whole workspace.")]
Mesh = Annotated[bool, typer.Option("--mesh", help="Scope: the whole mesh, all workspaces.")]

KILL = noun(APP, "kill-switch", "List the kill switches, or turn one on or off.")


@verb(KILL, "list")
def list_switches(cli: Cli) -> None:
    """List the kill switches."""
    cli.rows(cli.api.all(PATH), COLUMNS, "no kill switches")


# `--workspace` is the scope here; the workspace itself is named before the verb or by ANCHORWATCH_WORKSPACE.
@verb(KILL, without="workspace")
def on(
    cli: Cli,
    *,
    session: OneSession = None,
    agent: OneAgent = None,
    workspace: Whole = False,
    mesh: Mesh = False,
    reason: Reason = "",
    key: Key = None,
) -> None:
    """Block turns and commands in a scope."""
    _turn(cli, {"on": True, "reason": reason, **_scope(session, agent, workspace=workspace, mesh=mesh)}, key)


@verb(KILL, without="workspace")
def off(
    cli: Cli,
    *,
    session: OneSession = None,
    agent: OneAgent = None,
    workspace: Whole = False,
    mesh: Mesh = False,
    reason: Reason = "",
    key: Key = None,
) -> None:
    """Unblock turns and commands in a scope."""
    _turn(cli, {"on": False, "reason": reason, **_scope(session, agent, workspace=workspace, mesh=mesh)}, key)


def _scope(session: str | None, agent: str | None, *, workspace: bool, mesh: bool) -> dict[str, Any]:
    named = {"session": session, "agent": agent}
    given: list[dict[str, Any]] = [
        {"scope": scope, "name": name} for scope, name in named.items() if name is not None
    ]
    given += [{"scope": scope} for scope, wanted in (("workspace", workspace), ("mesh", mesh)) if wanted]
    if len(given) != 1:
        raise BadInput(
            "name one of --session, --agent, --workspace and --mesh", hint="each has its own kill switch"
        )
    return given[0]


def _turn(cli: Cli, body: dict[str, Any], key: str | None) -> None:
    done = cli.api.post(PATH, body, key=key)
    of = f"{done['scope']} {done['name']}" if done["name"] else f"the {done['scope']}"
    cli.say(done, f"the kill switch of {of} is {'on' if done['on'] else 'off'}")
