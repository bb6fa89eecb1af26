"""The verb `schedule`: wake a session by the clock."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from anchorwatch.cli.control_verbs import KeyOption, ReasonOption
from anchorwatch.cli.options import (
    DataDirOption,
    JsonOption,
    SessionOption,
    TokenOption,
    UrlOption,
    refuse_before,
)

SCHEDULE = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode=None,
    help="List the schedules; make, show, pause, resume or delete one.",
)
PATH = "/api/schedules"
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.", show_default=False)]


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.add_typer(SCHEDULE, name="schedule")


@SCHEDULE.callback()
def schedules(
    context: typer.Context,
    session: SessionOption = None,
    as_json: JsonOption = False,  # noqa: FBT002 - a flag of the command line
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """List the schedules; make, show, pause, resume or delete one."""
    if context.invoked_subcommand is None:
        list_schedules(session, as_json, data_dir, url, token)
    else:
        refuse_before(context.invoked_subcommand, session, as_json, data_dir, url, token)


@SCHEDULE.command("list")
def list_schedules(
    session: SessionOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """List the schedules."""
    from anchorwatch.cli import columns, views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        found = api.all(PATH, session=session)
    views.show(found, columns.SCHEDULES, as_json=as_json, empty="there are no schedules")


@SCHEDULE.command("show")
def show(
    name: NameArgument,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Show a schedule, with its next five occurrences."""
    from anchorwatch.cli import views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        views.schedule(api.get(f"{PATH}/{_checked(name)}"), as_json=as_json)


@SCHEDULE.command("create")
def create(  # noqa: PLR0913, PLR0917 - options of the command line
    name: NameArgument,
    session: Annotated[str, typer.Option("--session", metavar="SESSION", help="The session to wake.")],
    cron: Annotated[
        str,
        typer.Option(
            "--cron", metavar="EXPR", help="minute hour day-of-month month day-of-week, as '0 9 * * MON-FRI'."
        ),
    ],
    zone: Annotated[
        str, typer.Option("--zone", metavar="ZONE", help="Time zone, such as Europe/Berlin.")
    ] = "UTC",
    text: Annotated[str, typer.Option("--text", metavar="TEXT", help="What the session is told then.")] = "",
    missed: Annotated[
        str, typer.Option("--missed", metavar="one|skip", help="What was missed is made up for once, or not.")
    ] = "one",
    overlap: Annotated[
        str,
        typer.Option(
            "--overlap", metavar="skip|queue-one", help="During a turn, skip it, or let one wait for its end."
        ),
    ] = "skip",
    key: KeyOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Wake a session whenever a cron expression says so."""
    from anchorwatch.cli import views
    from anchorwatch.cli.target import open_api

    body = {
        "name": _checked(name),
        "session": session,
        "cron": cron,
        "zone": zone,
        "text": text,
        "missed": missed,
        "overlap": overlap,
    }
    with open_api(data_dir, url, token) as api:
        views.schedule(api.post(PATH, body, key=key), as_json=as_json)


@SCHEDULE.command("pause")
def pause(
    name: NameArgument,
    reason: ReasonOption = "",
    key: KeyOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Let nothing come of a schedule until it is resumed."""
    _post(name, "pause", reason, key, as_json, (data_dir, url, token))


@SCHEDULE.command("resume")
def resume(
    name: NameArgument,
    reason: ReasonOption = "",
    key: KeyOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Let a schedule go on. What came while it was paused is not made up for."""
    _post(name, "resume", reason, key, as_json, (data_dir, url, token))


@SCHEDULE.command("delete")
def delete(
    name: NameArgument,
    reason: ReasonOption = "",
    key: KeyOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Delete a schedule."""
    from anchorwatch.cli import views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        told = api.delete(f"{PATH}/{_checked(name)}", key=key, reason=reason or None)
    views.say(told, f"the schedule {name} is deleted", as_json=as_json)


def _post(
    name: str,
    verb: str,
    reason: str,
    key: str | None,
    as_json: bool,  # noqa: FBT001 - a flag of the command line
    where: tuple[Any, Any, Any],
) -> None:
    from anchorwatch.cli import views
    from anchorwatch.cli.target import open_api

    with open_api(*where) as api:
        told = api.post(f"{PATH}/{_checked(name)}/{verb}", {"reason": reason}, key=key)
    views.schedule(told, as_json=as_json)


def _checked(name: str) -> str:
    from anchorwatch.core.names import check_name

    return check_name(name, "schedule name")
