"""The verb `kill-switch`: hold a session, an agent or a whole workspace, at once."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from anchorwatch.cli.control_verbs import KeyOption, ReasonOption
from anchorwatch.cli.options import DataDirOption, JsonOption, TokenOption, UrlOption, refuse_before
from anchorwatch.core.errors import BadInput

KILL = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode=None,
    help="List the kill switches, or turn one on or off.",
)
PATH = "/api/kill-switches"
SessionOption = Annotated[str | None, typer.Option("--session", metavar="SESSION", help="Of this session.")]
AgentOption = Annotated[
    str | None, typer.Option("--agent", metavar="AGENT", help="Of all sessions of this agent.")
]
WorkspaceOption = Annotated[bool, typer.Option("--workspace", help="Of the whole workspace.")]


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.add_typer(KILL, name="kill-switch")


@KILL.callback()
def switches(
    context: typer.Context,
    as_json: JsonOption = False,  # noqa: FBT002 - a flag of the command line
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """List the kill switches, or turn one on or off."""
    if context.invoked_subcommand is not None:
        refuse_before(context.invoked_subcommand, as_json, data_dir, url, token)
        return
    from anchorwatch.cli import columns, views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        found = api.all(PATH)
    views.show(found, columns.SWITCHES, as_json=as_json, empty="no kill switch was ever turned")


@KILL.command("on")
def on(  # noqa: PLR0913, PLR0917 - options of the command line
    session: SessionOption = None,
    agent: AgentOption = None,
    workspace: WorkspaceOption = False,  # noqa: FBT002
    reason: ReasonOption = "",
    key: KeyOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Start no turn and no command there until it is turned off."""
    body = {"on": True, "reason": reason, **_scope(session, agent, workspace=workspace)}
    _turn(body, key, as_json, (data_dir, url, token))


@KILL.command("off")
def off(  # noqa: PLR0913, PLR0917 - options of the command line
    session: SessionOption = None,
    agent: AgentOption = None,
    workspace: WorkspaceOption = False,  # noqa: FBT002
    reason: ReasonOption = "",
    key: KeyOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Let it go on."""
    body = {"on": False, "reason": reason, **_scope(session, agent, workspace=workspace)}
    _turn(body, key, as_json, (data_dir, url, token))


def _scope(session: str | None, agent: str | None, *, workspace: bool) -> dict[str, Any]:
    given = [("session", session)] * (session is not None) + [("agent", agent)] * (agent is not None)
    if len(given) + workspace != 1:
        raise BadInput("name one of --session, --agent and --workspace", hint="each has its own kill switch")
    scope, name = given[0] if given else ("workspace", None)
    return {"scope": scope} if name is None else {"scope": scope, "name": name}


def _turn(
    body: dict[str, Any],
    key: str | None,
    as_json: bool,  # noqa: FBT001 - a flag of the command line
    where: tuple[Any, Any, Any],
) -> None:
    from anchorwatch.cli import views
    from anchorwatch.cli.target import open_api

    with open_api(*where) as api:
        told = api.post(PATH, body, key=key)
    of = f"{told['scope']} {told['name']}" if told["name"] else "the workspace"
    views.say(told, f"the kill switch of {of} is {'on' if told['on'] else 'off'}", as_json=as_json)
