"""What holds a session, and its open emergency, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anchorwatch.cli.render import local_time

NAMES = {
    "pause": "paused",
    "rate_limit": "rate limit",
    "no_progress": "no progress",
    "quarantine": "quarantined",
    "journal": "held for a loss of the journal's end",
}


def held(row: Mapping[str, Any]) -> str:
    """What holds a session, in one line; empty: nothing."""
    return "; ".join(map(_hold, row.get("held") or []))


def emergency(row: Mapping[str, Any]) -> str:
    """The open emergency of a session, in one line; empty: none."""
    if not (found := row.get("emergency")):
        return ""
    since, seen = local_time(found["since"]), local_time(found["last_seen_at"])
    return f"{found['what']} (since {since}, as last seen at {seen})"


def blocked_by(value: Mapping[str, Any]) -> list[str]:
    """What blocks an accepted input or order, with the verb that unblocks it: a line each; empty: nothing."""
    session, status = value.get("session"), value.get("session_status")
    found = []
    if status == "paused":
        found.append(f"the session is paused; `anchorwatch resume {session}` resumes it")
    if status == "quarantined":
        found.append(f"the session is quarantined; `anchorwatch repair {session}` repairs it")
    return found + [_switched(each) for each in value.get("kill_switches") or []]


def _switched(switch: Mapping[str, Any]) -> str:
    scope, name = switch["scope"], switch["name"]
    if scope == "mesh":
        return (
            f"nothing starts: {switch['reason']}; `anchorwatch journal accept` shows the loss and continues"
        )
    of, flag = (f"{scope} {name}", f"{scope} {name}") if name else ("the workspace", scope)
    why = f" ({switch['reason']})" if switch["reason"] else ""
    return (
        f"the kill switch of {of} is on, by {switch['by']} since {local_time(switch['at'])}{why};"
        f" `anchorwatch kill-switch off --{flag}` turns it off"
    )


def _hold(each: Mapping[str, Any]) -> str:
    what = (
        f"kill switch of the {each['of']}"
        if each["by"] == "kill_switch"
        else NAMES.get(each["by"], each["by"])
    )
    by = f" by {each['who']}" if each["who"] else ""
    until = f" until {local_time(each['until'])}" if each["until"] else f" since {local_time(each['since'])}"
    why = f" ({each['why']})" if each["why"] else ""
    return f"{what}{by}{until}{why}"
