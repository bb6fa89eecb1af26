"""Answers of the gateway, for people or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from anchorwatch.cli.columns import Column, Row, said_call
from anchorwatch.cli.holding import until_what
from anchorwatch.cli.show import LINE_CHARS_MAX, fields, local_time, many, one_line, table


def show(rows: Sequence[Row], columns: Sequence[Column], *, as_json: bool, empty: str) -> None:
    """A list."""
    if as_json:
        json_out(rows)
    elif not rows:
        print(empty)
    else:
        print(table([title for title, _ in columns], [[of(row) for _, of in columns] for row in rows]))


def tell(value: Row, *, as_json: bool) -> None:
    """One thing with all its fields, a line each; what has an inside of its own stands indented below its name."""
    if as_json:
        json_out(value)
    else:
        print("\n".join(fields(value)))


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
    said = one_line(f"{entry['what']}{said_call(entry)}{why}", chars_max=LINE_CHARS_MAX)
    print(f"{local_time(entry['at'])}  {entry['sequence']:>6}  {said}", flush=True)


def receipt(value: Row, *, as_json: bool) -> None:
    """Proof that an input was accepted."""
    text = f"accepted by {value['session']} as {value['input_id']} (journal sequence {value['sequence']})"
    if value.get("replayed"):
        text += "; it had been accepted before"
    say(value, "\n".join((text, *waits(value))), as_json=as_json)


def waits(value: Row, where: str = "") -> list[str]:
    """What keeps what was accepted from its turn, a line each."""
    return [f"it waits{where}: {one_line(why, chars_max=LINE_CHARS_MAX)}" for why in until_what(value)]


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
    lines += [f"nothing starts: {why}" for why in until_what({**value, "session_status": None})]
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
    if owed := value.get("owed"):
        stands_for = f", for itself and {owed['missed']} before it" if owed["missed"] else ""
        lines.append(f"owed: {owed['at']}{stands_for}: it came before the pause, and is still seen to, once")
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
