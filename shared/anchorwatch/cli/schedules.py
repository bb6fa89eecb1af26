"""Verbs on schedules: wake a session at the times of a cron expression."""

from __future__ import annotations

from typing import Annotated

import typer

from anchorwatch.cli.render import Column, Row, local_time
from anchorwatch.cli.verb import APP, Cli, Key, OfSession, Reason, noun, verb
from anchorwatch.core.names import check_name

PATH = "/api/schedules"
COLUMNS = (
    Column("schedule", "name"),
    Column("session"),
    Column("cron"),
    Column("zone"),
    Column("state"),
    Column("next", lambda row: row["next"][0]["at"] if row["next"] and row["state"] == "active" else None),
    Column("owed", lambda row: row["owed"]["at"] if row.get("owed") else None),
    Column("runs", lambda row: row.get("counts", {}).get("made")),
    Column("missed", lambda row: row.get("counts", {}).get("missed")),
    Column("skipped", lambda row: row.get("counts", {}).get("skipped")),
    Column("text", "text|reason"),
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.", show_default=False)]

SCHEDULE = noun(APP, "schedule", "List, create, show, pause, resume or delete schedules.")


@verb(SCHEDULE, "list")
def list_schedules(cli: Cli, *, session: OfSession = None) -> None:
    """List the schedules."""
    cli.rows(cli.api.all(PATH, session=session), COLUMNS, "no schedules")


@verb(SCHEDULE)
def show(cli: Cli, name: Name) -> None:
    """Show a schedule with its next five times."""
    _print(cli, cli.api.get(_path(name)))


@verb(SCHEDULE)
def create(  # noqa: PLR0913 - options of the command line
    cli: Cli,
    name: Name,
    *,
    session: Annotated[str, typer.Option("--session", metavar="SESSION", help="Session to wake.")],
    cron: Annotated[
        str, typer.Option("--cron", metavar="EXPR", help="Cron expression, such as '0 9 * * MON-FRI'.")
    ],
    zone: Annotated[
        str, typer.Option("--zone", metavar="ZONE", help="Time zone, such as Europe/Berlin.")
    ] = "UTC",
    text: Annotated[str, typer.Option("--text", metavar="TEXT", help="Message to the session.")] = "",
    missed: Annotated[
        str, typer.Option("--missed", metavar="one|skip", help="After missed times: run one, or skip them.")
    ] = "one",
    overlap: Annotated[
        str,
        typer.Option("--overlap", metavar="skip|queue-one", help="During a turn: skip, or queue one run."),
    ] = "skip",
    key: Key = None,
) -> None:
    """Create a schedule that wakes a session."""
    body = {
        "name": check_name(name, "schedule name"),
        "session": session,
        "cron": cron,
        "zone": zone,
        "text": text,
        "missed": missed,
        "overlap": overlap,
    }
    _print(cli, cli.api.post(PATH, body, key=key))


@verb(SCHEDULE)
def pause(cli: Cli, name: Name, *, reason: Reason = "", key: Key = None) -> None:
    """Pause a schedule."""
    _print(cli, cli.api.post(f"{_path(name)}/pause", {"reason": reason}, key=key))


@verb(SCHEDULE)
def resume(cli: Cli, name: Name, *, reason: Reason = "", key: Key = None) -> None:
    """Resume a schedule, without the times that passed meanwhile."""
    _print(cli, cli.api.post(f"{_path(name)}/resume", {"reason": reason}, key=key))


@verb(SCHEDULE)
def delete(cli: Cli, name: Name, *, reason: Reason = "", key: Key = None) -> None:
    """Delete a schedule."""
    cli.say(cli.api.delete(_path(name), key=key, reason=reason or None), f"schedule {name} deleted")


def _path(name: str) -> str:
    return f"{PATH}/{check_name(name, 'schedule name')}"


def _print(cli: Cli, schedule: Row) -> None:
    """A schedule with its next times, by the clocks of its zone."""
    counts = schedule["counts"]
    reason = f" ({schedule['reason']})" if schedule["reason"] else ""
    missed = "run one" if schedule["missed"] == "one" else schedule["missed"]
    so_far = f"runs {counts['made']}, missed {counts['missed']}, skipped {counts['skipped']}"
    lines = [
        f"schedule {schedule['name']} of session {schedule['session']}: {schedule['cron']} in {schedule['zone']}",
        f"{schedule['state']}, by {schedule['by']} at {local_time(schedule['at'])}{reason}",
        f"missed: {missed} · overlap: {schedule['overlap']} · {so_far}",
    ]
    if schedule["text"]:
        lines.append(f"text: {schedule['text']}")
    if schedule["next"]:
        paused = " (once resumed)" if schedule["state"] == "paused" else ""
        lines += [f"next{paused}:", *(f"  {each['at']}" for each in schedule["next"])]
    if owed := schedule.get("owed"):
        earlier = f", with {owed['missed']} before it" if owed["missed"] else ""
        lines.append(f"owed: {owed['at']}{earlier}: scheduled before the pause, still to run, once")
    if schedule.get("replayed"):
        lines.append("already done before")
    cli.say(schedule, *lines)
