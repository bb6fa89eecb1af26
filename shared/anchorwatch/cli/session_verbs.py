"""Verbs about sessions: look at one, follow it, tell it something."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from anchorwatch.cli.options import (
    DataDirOption,
    JsonOption,
    LimitOption,
    SessionArgument,
    TokenOption,
    UrlOption,
    refuse_before,
)
from anchorwatch.core.errors import BadInput, Unavailable
from anchorwatch.core.names import check_name

TAIL_RECORDS = 10
HistoryOption = Annotated[bool, typer.Option("--history", help="Every change: what, when, by whom, why.")]
SESSIONS = typer.Typer(
    invoke_without_command=True, rich_markup_mode=None, help="List the sessions, or make one."
)


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    app.add_typer(SESSIONS, name="sessions")
    for verb in (show, anchor, timeline, tail, wakes, say, trigger):
        app.command()(verb)


@SESSIONS.callback()
def sessions(
    context: typer.Context,
    limit: LimitOption = 200,
    as_json: JsonOption = False,  # noqa: FBT002 - a flag of the command line
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """List the sessions, or make one (``create``)."""
    if context.invoked_subcommand is not None:
        refuse_before(context.invoked_subcommand, as_json, data_dir, url, token)
        return
    from anchorwatch.cli import columns, views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        views.show(
            api.pages("/api/sessions", limit),
            columns.SESSIONS,
            as_json=as_json,
            empty="there are no sessions",
        )


@SESSIONS.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="1-63 characters of a-z, 0-9 and '-'.")],
    agent: Annotated[
        str, typer.Option("--agent", metavar="AGENT", help="The agent that it is a session of.")
    ],
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Make a session of an agent."""
    from anchorwatch.cli import looking, views
    from anchorwatch.cli.target import open_api

    body = {"name": looking.name(name), "agent": check_name(agent, "agent name")}
    with open_api(data_dir, url, token) as api:
        made = api.post("/api/sessions", body)
    state = "made" if made.get("created", True) else "is there already"
    views.say(made, f"session {made['name']} of agent {made['agent']} {state}", as_json=as_json)


def show(
    session: SessionArgument,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Show a session, or one call of it (SESSION/RUN.STEP.N)."""
    from anchorwatch.cli import holding, looking, views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        found = looking.call(api, session) if "/" in session else looking.session(api, session)
    if "held" in found and not as_json:
        found = {**found, "held": holding.held(found) or None}
    views.tell(found, as_json=as_json)


def anchor(
    session: SessionArgument,
    history: HistoryOption = False,  # noqa: FBT002
    limit: LimitOption = 200,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Show the session's anchor: its working memory."""
    from anchorwatch.cli import looking, views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        path = f"/api/sessions/{looking.name(session)}/anchor"
        if history:
            views.history(api.pages(path, limit, history="true"), as_json=as_json)
        else:
            # JSON is what an anchor is, to people too.
            views.json_out(api.get(path))


def timeline(
    session: SessionArgument,
    turn: Annotated[
        str | None, typer.Option("--turn", metavar="T", help="One turn: its id or run number.")
    ] = None,
    limit: LimitOption = 100,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Show what happened and why, the newest last."""
    from anchorwatch.cli import columns, looking, views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        path = f"/api/sessions/{looking.name(session)}/timeline"
        found = api.pages(path, limit, newest=True, turn=turn)
    views.show(found, columns.TIMELINE, as_json=as_json, empty="nothing has happened yet")


def tail(
    session: SessionArgument,
    after: Annotated[
        int | None,
        typer.Option(
            "--after", metavar="SEQ", help="What came behind this journal sequence, not the last few records."
        ),
    ] = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Follow a session's journal as it is written, until Ctrl-C."""
    from anchorwatch.cli import looking, views
    from anchorwatch.cli.target import open_api

    # Ctrl-C is how one stops looking, and no failure.
    with contextlib.suppress(KeyboardInterrupt), open_api(data_dir, url, token) as api:
        path = f"/api/sessions/{looking.name(session)}"
        if after is None and not as_json:
            # A session at rest may write nothing for minutes: whoever looks sees where it stands.
            with contextlib.suppress(Unavailable):
                last = api.pages(f"{path}/timeline", TAIL_RECORDS, newest=True)
                after = last[0]["sequence"] - 1 if last else None
            typer.echo(f"following {session} (Ctrl-C ends it)", err=True)
        for event in api.stream(f"{path}/stream", after=after):
            if event.name == "record":
                views.record(event.data, as_json=as_json)


def wakes(  # noqa: PLR0913, PLR0917 - options of the command line
    session: Annotated[
        str,
        typer.Argument(metavar="SESSION", help="The session; or `clear SESSION`: dispose of what waits."),
    ],
    cleared: Annotated[
        str | None, typer.Argument(metavar="[SESSION]", show_default=False, hidden=True)
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="With clear: why.")] = "",
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="With clear: idempotency key.")
    ] = None,
    limit: LimitOption = 100,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Show every reason to look, and what became of it."""
    from anchorwatch.cli import columns, looking, views
    from anchorwatch.cli.target import open_api

    if cleared is not None:
        if session != "clear":
            raise BadInput(f"there is no `wakes {session}`", hint="`wakes SESSION`, or `wakes clear SESSION`")
        with open_api(data_dir, url, token) as api:
            told = api.post(f"/api/sessions/{looking.name(cleared)}/wakes/clear", {"reason": reason}, key=key)
        views.control(told, as_json=as_json)
        return
    with open_api(data_dir, url, token) as api:
        found = api.pages(f"/api/sessions/{looking.name(session)}/wakes", limit, newest=True)
        coming = [] if as_json else api.all("/api/schedules", session=session)
    views.show(found, columns.WAKES, as_json=as_json, empty="there was no wake yet")
    views.coming(coming)


def say(
    session: SessionArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to tell it; - reads standard input.")],
    priority: Annotated[
        str, typer.Option("--priority", metavar="P", help="P0: look at once; P1: soon; P2: next check.")
    ] = "P0",
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Idempotency key: the same is said once.")
    ] = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Tell a session something, as a person."""
    from anchorwatch.cli import looking, views
    from anchorwatch.cli.target import open_api

    content = typer.get_text_stream("stdin").read() if text == "-" else text
    with open_api(data_dir, url, token) as api:
        path = f"/api/sessions/{looking.name(session)}/inputs"
        receipt = api.post(path, {"content": content, "priority": priority}, key=key)
    views.receipt(receipt, as_json=as_json)


def trigger(
    session: SessionArgument,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; the agent is told.")] = "",
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Idempotency key: the same is one turn.")
    ] = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Ask for a turn now."""
    from anchorwatch.cli import looking, views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        receipt = api.post(
            f"/api/sessions/{looking.name(session)}/trigger", {"reason": reason} if reason else {}, key=key
        )
    views.receipt(receipt, as_json=as_json)
