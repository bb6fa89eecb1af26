"""Answers of the gateway, for people or as JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anchorwatch.cli.holding import held
from anchorwatch.cli.show import local_time, many, one_line, table

LINE_CHARS_MAX = 2000
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
            f"{row['what']}{_call(row)}{f' - {why}' if (why := row.get('why')) else ''}{_skipped(row)}"
        ),
    ),
)
_WAKES_SAID = {"tick": "time to look again", "control": "an order", "canary": "behind a reset"}


def _wake(row: Row) -> str | None:
    """What a wake is: an event, an order or a schedule by its name, and what it says."""
    kind, type_, text = row.get("kind"), row.get("type"), row.get("text")
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


def show(rows: Sequence[Row], columns: Sequence[Column], *, as_json: bool, empty: str) -> None:
    """A list."""
    if as_json:
        json_out(rows)
    elif not rows:
        print(empty)
    else:
        print(table([title for title, _ in columns], [[of(row) for _, of in columns] for row in rows]))


def tell(value: Row, *, as_json: bool) -> None:
    """One thing with all its fields; what has an inside of its own is shown as JSON."""
    if as_json:
        json_out(value)
        return
    width = max(len(name) for name in value)
    for name, field in value.items():
        if isinstance(field, dict | list):
            text = json.dumps(field, ensure_ascii=False)
        elif name.endswith("_at") or name == "at":
            text = local_time(field)
        else:
            text = one_line(field, chars_max=LINE_CHARS_MAX)
        print(f"{name.ljust(width)}  {text}")


def history(changes: Sequence[Row], *, as_json: bool) -> None:
    """An anchor's changes."""
    if as_json:
        json_out(changes)
        return
    for change in changes:
        said = f"{change['kind']}  by {change['by']}  {change['reason']}"
        print(f"{local_time(change['at'])}  seq {change['sequence']}  {said}".rstrip())
        for name, values in change["changes"].items():
            print(f"    {name}: {json.dumps(values.get('from'))} -> {json.dumps(values.get('to'))}")


def record(entry: Row, *, as_json: bool) -> None:
    """One record of a live session; flushed, since somebody is watching."""
    if as_json:
        print(json.dumps(entry, ensure_ascii=False), flush=True)
        return
    why = f" - {entry['why']}" if entry.get("why") else ""
    said = one_line(f"{entry['what']}{_call(entry)}{why}", chars_max=LINE_CHARS_MAX)
    print(f"{local_time(entry['at'])}  {entry['sequence']:>6}  {said}", flush=True)


def receipt(value: Row, *, as_json: bool) -> None:
    """Proof that an input was accepted."""
    text = f"accepted by {value['session']} as {value['input_id']} (journal sequence {value['sequence']})"
    if value.get("replayed"):
        text += "; it had been accepted before"
    if value.get("session_status") == "paused":
        text += "; the session is paused and keeps it until it is resumed"
    say(value, text, as_json=as_json)


def control(value: Row, *, as_json: bool) -> None:
    """Proof that an order was carried out."""
    text = (
        f"{value['session']}: {_done(value)} (journal sequence {value['sequence']});"
        f" it is {value['session_status']}"
    )
    if value.get("replayed"):
        text += "; it had been done before"
    lines = [text, *_disposed(value.get("more", {}))]
    if value.get("never_start"):
        lines.append(f"will not start: {', '.join(value['never_start'])}")
    lines += [
        f"too late for {each['call']} {each['tool']}: {each['note']}" for each in value.get("too_late", ())
    ]
    say(value, "\n".join(lines), as_json=as_json)


def _done(value: Row) -> str:
    """What an order did, in words: ``paused``, ``constraints changed``."""
    if (which := value.get("more", {}).get("which")) is not None:
        return f"{which} changed"
    return str(value["kind"]).replace("_", " ")


def schedule(value: Row, *, as_json: bool) -> None:
    """A schedule, with what comes next as the clocks of its zone show it."""
    counts = value["counts"]
    so_far = f"{counts['made']} made, {counts['missed']} missed, {counts['skipped']} skipped"
    reason = f" ({value['reason']})" if value["reason"] else ""
    lines = [
        f"schedule {value['name']} of session {value['session']}: {value['cron']} in {value['zone']}",
        f"{value['state']}, by {value['by']} at {local_time(value['at'])}{reason}",
        f"what was missed: {value['missed']}; during a turn: {value['overlap']}; so far: {so_far}",
    ]
    if value["text"]:
        lines.append(f"tells it: {one_line(value['text'], chars_max=LINE_CHARS_MAX)}")
    paused = " (once it is resumed)" if value["state"] == "paused" else ""
    lines += [f"next{paused}:", *(f"  {each['at']}" for each in value["next"])] if value["next"] else []
    if value.get("replayed"):
        lines.append("it had been done before")
    say(value, "\n".join(lines), as_json=as_json)


def coming(schedules: Sequence[Row]) -> None:
    """When schedules wake their session next."""
    for each in schedules:
        if each["state"] == "active" and each["next"]:
            print(f"to come: {each['next'][0]['at']} by the schedule {each['name']}")


def _disposed(more: Row) -> list[str]:
    lines = []
    if "archived" in more:
        lines.append(f"archived: {many(more['archived']['turns'], 'turn')}")
    if "superseded" in more:
        lines.append(f"disposed of: {many(more['superseded']['count'], 'input')} that waited")
    return lines


def reset_shown(value: Row, *, as_json: bool) -> None:
    """What a reset would do."""
    kept, disposed = value["kept"], value["disposed"]
    directives = (
        f"{many(len(kept['objectives']), 'objective')}, {many(len(kept['constraints']), 'constraint')}"
    )
    labelled = (
        f"{many(len(kept['critical']), 'labelled fact')}, the facts, and the run count ({kept['run_count']})"
    )
    lines = [
        f"archived: {many(value['archived']['turns'], 'turn')} of the conversation",
        f"kept: {directives}, {labelled}",
        f"disposed of: {many(disposed['count'], 'input')} that wait",
        *(f"  {each['kind']} {each['input_id']}  {one_line(each['text'])}" for each in disposed["inputs"]),
    ]
    if value.get("cancelled_turn"):
        lines.append(f"cancelled: the running turn {value['cancelled_turn']}")
    lines.append(f"confirmation: {value['confirmation']}")
    say(value, "\n".join(lines), as_json=as_json)


def say(value: Any, text: str, *, as_json: bool) -> None:  # noqa: ANN401 - JSON
    """``text`` for people, ``value`` for programs."""
    if as_json:
        json_out(value)
    else:
        print(text)


def json_out(value: Any) -> None:  # noqa: ANN401 - JSON
    """JSON, indented when somebody looks at it."""
    json.dump(value, sys.stdout, ensure_ascii=False, indent=2, default=str)
    print()


def _call(row: Row) -> str:
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
