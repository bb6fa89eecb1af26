"""What holds a session, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anchorwatch.cli.show import local_time

NAMES = {
    "pause": "paused",
    "rate_limit": "rate limit",
    "no_progress": "no progress",
    "quarantine": "quarantined",
}


def held(row: Mapping[str, Any]) -> str:
    """What holds a session, in one line; empty: nothing does."""
    return "; ".join(map(_hold, row.get("held") or []))


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
