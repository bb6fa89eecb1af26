"""The lists that people are shown, column by column: a title, and what stands there of a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anchorwatch.cli.holding import held
from anchorwatch.cli.show import local_time

# Which start of an instance it was is of use to programs; people know it by its name.
_INCARNATION = re.compile(r":[0-9a-f]{32}$")

Row = Mapping[str, Any]
Column = tuple[str, Callable[[Row], Any]]


def _field(*names: str) -> Callable[[Row], Any]:
    """The first of these fields that a row has."""
    return lambda row: next((row[name] for name in names if row.get(name) is not None), None)


def _time(*names: str) -> Callable[[Row], str]:
    find = _field(*names)
    return lambda row: local_time(find(row))


SESSIONS: Sequence[Column] = (
    ("session", _field("name", "session")),
    ("agent", _field("agent")),
    ("status", _field("status")),
    ("runs", _field("run_count")),
    ("last outcome", _field("last_run_outcome")),
    ("last run", _time("last_run_timestamp")),
    ("next check", _time("next_check_at")),
    ("held", held),
)
AGENTS: Sequence[Column] = (
    ("agent", _field("name")),
    ("version", _field("version")),
    ("pack", _field("pack")),
    ("model", _field("model")),
    ("heartbeat", _field("heartbeat_s")),
    ("description", _field("description")),
)
MODELS: Sequence[Column] = (
    ("name", _field("name")),
    ("model", _field("model")),
    ("endpoint", _field("endpoint")),
    ("profile", _field("profile")),
    ("counted by", _field("counter")),
    ("corrected", lambda row: _correction(row.get("correction"))),
    ("last report", lambda row: _report(row.get("last_report"))),
    ("failures", _field("failures")),
    ("asked again", _time("asked_again_at")),
    ("agents", lambda row: ", ".join(row["agents"])),
    ("problem", lambda row: row.get("problem") or (row["fault"]["why"] if row.get("failures") else None)),
)
TIMELINE: Sequence[Column] = (
    ("at", _time("at")),
    ("seq", _field("sequence")),
    ("who", lambda row: _INCARNATION.sub("", str(row.get("who") or "-"))),
    (
        "what",
        lambda row: (
            f"{row['what']}{said_call(row)}{f' - {why}' if (why := row.get('why')) else ''}{_skipped(row)}"
        ),
    ),
)
_WAKES_SAID = {"control": "an order", "canary": "behind a reset"}
_TICKS_SAID = {"tick": "an input that waited fell due", "check": "the time for a check came"}


def _wake(row: Row) -> str | None:
    """What a wake is: an event, an order or a schedule by its name, and what it says."""
    kind, type_, text = row.get("kind"), row.get("type"), row.get("text")
    if kind == "tick" and not row.get("source"):
        return _TICKS_SAID.get(str(type_), "time to look again")
    name = type_ if kind == "control" or not text else ""
    if row.get("source"):
        name = f"{row['source']}.{type_}" if kind == "event" else f"{row['source']} {type_}"
    return " - ".join(filter(None, (name, text))) or _WAKES_SAID.get(str(kind))


WAKES: Sequence[Column] = (
    ("accepted", _time("accepted_at")),
    ("seq", _field("sequence")),
    ("prio", lambda row: _priority(row.get("priority"))),
    ("kind", _field("kind")),
    ("disposition", _field("disposition")),
    ("run", _field("run_id")),
    ("what", _wake),
)
EFFECTS: Sequence[Column] = (
    ("call", _field("call")),
    ("tool", _field("tool")),
    ("state", _field("state")),
    ("attempts", _field("attempts")),
    ("owner", _field("owner")),
    ("decided", _time("decided_at")),
    ("ended", _time("ended_at")),
    ("blocks", lambda row: row.get("blocks") or None),
    ("result", _field("text", "error")),
)
DELIVERIES: Sequence[Column] = (
    ("delivery", _field("delivery_id")),
    ("session", _field("session")),
    ("channel", _field("channel")),
    ("state", _field("state")),
    ("claims", _field("claims")),
    ("last", _time("last_at")),
    ("title", _field("title")),
    ("error", _field("error")),
)
DEAD_LETTERS: Sequence[Column] = (
    ("id", _field("id")),
    ("state", _field("state")),
    ("tries", _field("tries")),
    ("session", _field("session")),
    ("last", _time("last_at")),
    ("message", lambda row: f"{row['message']['stream']} {row['message']['sequence']}"),
    ("error", lambda row: f"{row['error']['code']}: {row['error']['text']}"),
)
SWITCHES: Sequence[Column] = (
    ("of", _field("scope")),
    ("name", _field("name")),
    ("is", lambda row: "on" if row["on"] else "off"),
    ("since", _time("at")),
    ("by", _field("by")),
    ("reason", _field("reason")),
)
SCHEDULES: Sequence[Column] = (
    ("schedule", _field("name")),
    ("session", _field("session")),
    ("cron", _field("cron")),
    ("zone", _field("zone")),
    ("state", _field("state")),
    ("next", lambda row: row["next"][0]["at"] if row["next"] and row["state"] == "active" else None),
    ("owed", lambda row: row["owed"]["at"] if row.get("owed") else None),
    ("made", lambda row: row.get("counts", {}).get("made")),
    ("missed", lambda row: row.get("counts", {}).get("missed")),
    ("skipped", lambda row: row.get("counts", {}).get("skipped")),
    ("text", _field("text", "reason")),
)
SPENDING: Sequence[Column] = (
    ("what", _field("what")),
    ("outcome", _field("outcome")),
    ("calls", _field("calls")),
    ("prompt tokens", _field("prompt")),
    ("completion tokens", _field("completion")),
    ("cost", _field("cost")),
)
BLOCKS: Sequence[Column] = (
    ("block", _field("name")),
    ("tokens", _field("tokens")),
    ("left out", _field("left_out")),
    ("begins", lambda row: row["text"][:60]),
)


def said_call(row: Row) -> str:
    """The call that an entry is about, as the verbs take it."""
    return f" [{row['call']}]" if row.get("call") else ""


def _skipped(row: Row) -> str:
    return " [skipped in prompt]" if row.get("in_prompt") == "skipped" else ""


def _correction(value: Row | None) -> str | None:
    if not value or not value["reports"]:
        return None
    return f"× {value['ratio']:.3g}, at least + {value['excess']}"


def _report(value: Row | None) -> str | None:
    return f"{value['reported']} (counted {value['counted']})" if value else None


def _priority(value: Any) -> Any:  # noqa: ANN401 - a number, or text already
    return f"P{value}" if isinstance(value, int) else value
