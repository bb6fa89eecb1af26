"""What holds a session, by whom and why: a kill switch, a person's pause, its limits, its damage. Found when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anchorwatch.core.anchor import Anchor, Pace
from anchorwatch.core.errors import NotFound
from anchorwatch.core.session.pacing import FREE, Rate
from anchorwatch.core.session.state import Input
from anchorwatch.core.times import from_iso, iso
from anchorwatch.journal.switches import WHOLE, Switch
from anchorwatch.service.rates import rate_of

from anchorwatch_gateway.parts import Parts

Row = dict[str, Any]
PRIORITIES = {"P0": 0, "P1": 1, "P2": 2}


async def add(parts: Parts, workspace: str, sessions: Sequence[Row]) -> None:
    """Say of each of these sessions of a workspace what holds it now: `held`, a list.

    Raises:
        Unavailable, Damaged.
    """
    switches = [each for each in await parts.switches.all(workspace) if each.on] if sessions else []
    for row in sessions:
        row["held"] = [
            *(_switched(each) for each in switches if _is_of(each, row)),
            *_by_person(row),
            *await _by_limits(parts, row),
        ]


async def put_off(parts: Parts, session: Row, wakes: Sequence[Row]) -> None:
    """Let the wakes that wait in a session be due no earlier than its limits let them.

    Raises:
        Unavailable, Damaged.
    """
    rate = await _rate(parts, session)
    held = rate.held(_anchor(session), parts.clock.now_ms()) if rate else FREE
    for wake in wakes:
        if wake.get("due_at") and (until_ms := held.until_ms(_input(wake))) > from_iso(wake["due_at"]):
            wake["due_at"] = iso(until_ms)


def _is_of(switch: Switch, row: Row) -> bool:
    names = {"session": str(row["name"]), "agent": str(row["agent"]), "workspace": WHOLE}
    return names[switch.scope] == switch.name


def _switched(switch: Switch) -> Row:
    return {
        "by": "kill_switch",
        "of": switch.scope,
        "who": switch.by,
        "since": iso(switch.at_ms),
        "until": None,
        "why": switch.reason,
    }


def _by_person(row: Row) -> list[Row]:
    found = []
    if row["status"] == "paused" and row.get("paused"):
        found.append({"by": "pause", "of": "session", "until": None, **row["paused"]})
    if damage := row.get("quarantine"):
        told = {"who": "", "since": damage["since"], "until": None, "why": damage["reason"]}
        found.append({"by": "quarantine", "of": "session", **told})
    return found


async def _by_limits(parts: Parts, row: Row) -> list[Row]:
    rate = await _rate(parts, row)
    hold = rate.hold(_anchor(row), parts.clock.now_ms()) if rate else None
    if hold is None:
        return []
    since = row["last_run_timestamp"] if hold.why == "no_progress" else row["pace"]["started_at"]
    why = f"{row['runs_without_progress']} turns in a row" if hold.why == "no_progress" else hold.why
    by = "no_progress" if hold.why == "no_progress" else "rate_limit"
    return [{"by": by, "of": "agent", "who": "", "since": since, "until": iso(hold.at_ms), "why": why}]


async def _rate(parts: Parts, row: Row) -> Rate | None:
    """The limits of an idle session; nothing else begins a turn by itself."""
    if row["status"] != "idle":
        return None
    try:
        return rate_of(await parts.agents.get(row["workspace"], row["agent"]), parts.settings)
    except NotFound:
        return None


def _anchor(row: Row) -> Anchor:
    """As much of the anchor as limits are decided by."""
    return Anchor(
        workspace=row["workspace"],
        session=row["name"],
        agent=row["agent"],
        pace=Pace(**row["pace"]) if row["pace"] else None,
        runs_without_progress=row["runs_without_progress"],
        last_run_timestamp=row["last_run_timestamp"],
    )


def _input(wake: Row) -> Input:
    return Input(wake["sequence"], wake["input_id"], wake["kind"], PRIORITIES[wake["priority"]], 0)  # type: ignore[arg-type]  # as memory gives them
