"""Verbs on sessions: list, create, show, follow, and send input to one."""

from __future__ import annotations

import contextlib
import json
import re
import time
from typing import Annotated, Any

import typer

from anchorwatch.cli import effects, holding
from anchorwatch.cli.render import LINE_CHARS_MAX, UNKNOWN, Column, Row, Times
from anchorwatch.cli.verb import (
    APP,
    Cli,
    Iso,
    Key,
    Limit,
    OfTurn,
    Reason,
    Session,
    Text,
    Utc,
    noun,
    read_text,
    session_path,
    verb,
)
from anchorwatch.core.errors import Refused, Unavailable
from anchorwatch.core.names import check_name

TAIL_RECORDS = 10
ANSWER_S_MAX = 120.0
ANSWER_POLL_S = 0.5
_INCARNATION = re.compile(r":[0-9a-f]{32}$")
"""Which start of an instance it was: for programs. People know the instance by its name."""
_UNNAMED = {"control": "order", "canary": "canary turn after a reset"}
_TICKS = {"tick": "debounce window ended", "check": "scheduled check"}

SESSIONS = noun(APP, "sessions", "List the sessions, or create one.")


def _wake(row: Row) -> str | None:
    """What a wake-up is: an event, an order or a schedule by its name, and its text."""
    kind, type_, text = row.get("kind"), row.get("type"), row.get("text")
    if kind == "tick" and not row.get("source"):
        return _TICKS.get(str(type_), "wake-up timer")
    name = type_ if kind == "control" or not text else ""
    if row.get("source"):
        name = f"{row['source']}.{type_}" if kind == "event" else f"{row['source']} {type_}"
    return " - ".join(filter(None, (name, text))) or _UNNAMED.get(str(kind))


def _what(row: Row) -> str:
    call = f" [{row['call']}]" if row.get("call") else ""
    why = f" - {row['why']}" if row.get("why") else ""
    return f"{row['what']}{call}{why}{_omitted(row)}"


def _omitted(row: Row) -> str:
    shown = row.get("in_prompt")
    return f" [{shown} in prompt]" if shown in ("skipped", "shortened") else ""


def _details(row: Row, times: Times) -> list[str]:
    """The facts of a decision, the data of an event and the changes of an order, a line each."""
    facts, changes = row.get("facts") or {}, row.get("changes") or {}
    lines = []
    if facts:
        known = [
            f"{name}={UNKNOWN if value is None else json.dumps(value, ensure_ascii=False)}"
            for name, value in facts.items()
        ]
        omitted = row.get("facts_omitted")
        lines.append("facts: " + ", ".join([*known, f"{omitted} more"] if omitted else known))
    lines += [f"{name}: {row[name]}" for name in ("data", "attributes", "said") if row.get(name)]
    return [*lines, *_changes(changes, times)]


def _changes(changes: Row, times: Times) -> list[str]:
    def shown(name: str, value: Row, end: str) -> str:
        if end not in value:
            return UNKNOWN
        return times.of(value[end]) if name.endswith("_at") else json.dumps(value[end], ensure_ascii=False)

    return [
        f"{name}: {shown(name, each, 'from')} -> {shown(name, each, 'to')}" for name, each in changes.items()
    ]


def _priority(row: Row) -> Any:  # noqa: ANN401 - a number, or text
    value = row.get("priority")
    return f"P{value}" if isinstance(value, int) else value


SESSION_COLUMNS = (
    Column("session", "name|session"),
    Column("agent"),
    Column("status"),
    Column("runs", "run_count"),
    Column("last outcome", "last_run_outcome"),
    Column("last run", "last_run_timestamp"),
    Column("next check", "next_check_at"),
    Column("emergency", holding.emergency),
    Column("held", holding.held),
)
TIMELINE_COLUMNS = (
    Column("seq", "sequence"),
    Column("who", lambda row: _INCARNATION.sub("", str(row.get("who") or "-"))),
    Column("what", _what, chars_max=LINE_CHARS_MAX),
)
WAKE_COLUMNS = (
    Column("seq", "sequence"),
    Column("prio", _priority),
    Column("kind"),
    Column("disposition"),
    Column("run", "run_id"),
    Column("what", _wake),
)


def _time(title: str, name: str, times: Times) -> Column:
    return Column(title, lambda row: times.of(row.get(name)))


@verb(SESSIONS, "list")
def list_sessions(cli: Cli, limit: Limit = 200) -> None:
    """List the sessions."""
    cli.rows(cli.api.pages("/api/sessions", limit), SESSION_COLUMNS, "no sessions")


@verb(SESSIONS, "create")
def create(
    cli: Cli,
    name: Annotated[str, typer.Argument(metavar="NAME", help="1-63 characters of a-z, 0-9 and '-'.")],
    *,
    agent: Annotated[str, typer.Option("--agent", metavar="AGENT", help="Agent of the session.")],
) -> None:
    """Create a session of an agent."""
    body = {"name": check_name(name, "session name"), "agent": check_name(agent, "agent name")}
    created = cli.api.post("/api/sessions", body)
    state = "created" if created.get("created", True) else "exists already"
    cli.say(created, f"session {created['name']} of agent {created['agent']} {state}")


@verb(APP)
def show(
    cli: Cli,
    session: Annotated[str, typer.Argument(metavar="SESSION|CALL", help="A session, or SESSION/RUN.STEP.N.")],
) -> None:
    """Show a session with its anchor, or one call."""
    found = effects.find(cli.api, session) if "/" in session else cli.api.get(session_path(session))
    if "held" in found and not cli.as_json:
        found = {**found, "held": holding.held(found) or None, "emergency": holding.emergency(found) or None}
    cli.fields(found)


@verb(APP)
def anchor(
    cli: Cli,
    session: Session,
    *,
    history: Annotated[
        bool, typer.Option("--history", help="List every change: time, author, reason, values.")
    ] = False,
    limit: Limit = 200,
    utc: Utc = False,
    iso: Iso = False,
) -> None:
    """Show the anchor of a session, its working memory, as JSON."""
    path = session_path(session, "anchor")
    if not history:
        cli.json(cli.api.get(path))
        return
    changes = cli.api.pages(path, limit, history="true")
    times = Times(utc, iso)
    cli.say(changes, *(line for change in changes for line in _change(change, times)))


def _change(change: Row, times: Times) -> list[str]:
    head = f"{times.of(change['at'])}  seq {change['sequence']}  {change['kind']}  by {change['by']}"
    values = [f"    {line}" for line in _changes(change["changes"], times)]
    return [f"{head}: {change['reason']}" if change["reason"] else head, *values]


@verb(APP)
def timeline(
    cli: Cli,
    session: Session,
    *,
    turn: OfTurn = None,
    limit: Limit = 100,
    utc: Utc = False,
    iso: Iso = False,
) -> None:
    """List what happened in a session, why and on which facts, newest last."""
    found, times = (
        cli.api.pages(session_path(session, "timeline"), limit, newest=True, turn=turn),
        Times(utc, iso),
    )
    cli.rows(
        found,
        (_time("at", "at", times), *TIMELINE_COLUMNS),
        "no records",
        details=lambda row: _details(row, times),
    )


@verb(APP)
def tail(
    cli: Cli,
    session: Session,
    *,
    after: Annotated[
        int | None,
        typer.Option("--after", metavar="SEQ", help="Start after this journal sequence."),
    ] = None,
    utc: Utc = False,
    iso: Iso = False,
) -> None:
    """Follow the journal of a session until Ctrl-C."""
    times = Times(utc, iso)
    with contextlib.suppress(KeyboardInterrupt):
        path = session_path(session)
        api = cli.api
        if after is None and not cli.as_json:
            # A session at rest may write nothing for minutes: its last records show its state.
            with contextlib.suppress(Unavailable):
                last = api.pages(f"{path}/timeline", TAIL_RECORDS, newest=True)
                after = last[0]["sequence"] - 1 if last else None
            typer.echo(f"following {session} (Ctrl-C ends it)", err=True)
        for event in api.stream(f"{path}/stream", after=after):
            if event.name != "record":
                continue
            if cli.as_json:
                print(json.dumps(event.data, ensure_ascii=False), flush=True)
            else:
                entry = event.data
                cli.lines(f"{times.of(entry['at'])}  {entry['sequence']:>6}  {_what(entry)}")
                cli.lines(*(f"    {line}" for line in _details(entry, times)))


WAKES = noun(APP, "wakes", "List the wake-ups of a session, or clear those that are queued.", word="list")


@verb(WAKES, "list")
def list_wakes(cli: Cli, session: Session, *, limit: Limit = 100, utc: Utc = False, iso: Iso = False) -> None:
    """List wake-ups and how each was handled."""
    found = cli.api.pages(session_path(session, "wakes"), limit, newest=True)
    cli.rows(found, (_time("accepted", "accepted_at", Times(utc, iso)), *WAKE_COLUMNS), "no wake-ups")
    if not cli.as_json:
        for each in cli.api.all("/api/schedules", session=session):
            if each["state"] == "active" and each["next"]:
                cli.lines(f"next: {each['next'][0]['at']} by the schedule {each['name']}")


@verb(WAKES, "clear")
def clear_wakes(cli: Cli, session: Session, *, reason: Reason = "", key: Key = None) -> None:
    """Discard the queued inputs of a session."""
    order_done(cli, cli.api.post(session_path(session, "wakes", "clear"), {"reason": reason}, key=key))


@verb(APP)
def say(
    cli: Cli,
    session: Session,
    text: Text,
    *,
    priority: Annotated[
        str, typer.Option("--priority", metavar="P", help="P0: turn now; P1: soon; P2: at the next check.")
    ] = "P0",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the answer, and print it.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="With --wait: wait at most so long.", min=1)
    ] = ANSWER_S_MAX,
    key: Key = None,
) -> None:
    """Send a message to a session."""
    body = {"content": read_text(text), "priority": priority}
    receipt = cli.api.post(session_path(session, "inputs"), body, key=key)
    if not wait:
        _receipt(cli, receipt)
        return
    if not cli.as_json:
        _receipt(cli, receipt)
    if blocked := holding.blocked_by(receipt):
        raise Refused(f"the message is queued, and {blocked[0]}", hint=_later(session))
    handled = _handled(cli, session, receipt["sequence"], timeout)
    if cli.as_json:
        cli.json({**receipt, "handled": handled})
        return
    turn, answer = handled["turn"], handled["answer"]
    cli.lines(
        f"turn {turn['run_id']} ended: {turn['outcome']} - {turn['reason']}"
        if turn
        else f"{handled['disposition']}: {handled['reason']}"
    )
    if answer:
        cli.text(answer["text"])


def _handled(cli: Cli, session: str, sequence: int, timeout_s: float) -> Row:
    """The input at ``sequence`` once the turn that took it has ended, or none will take it.

    Raises:
        Unavailable: neither happened in time.
    """
    until = time.monotonic() + timeout_s
    while True:
        found: Row = cli.api.get(session_path(session, "inputs", str(sequence)), at_least=sequence)
        turn = found["turn"]
        if turn["ended_at"] is not None if turn else found["disposition"] != "pending":
            return found
        if time.monotonic() >= until:
            raise Unavailable(f"no answer within {timeout_s:g} s", hint=_later(session))
        time.sleep(ANSWER_POLL_S)


def _later(session: str) -> str:
    return f"`anchorwatch conversation {session}` shows the answer once there is one"


@verb(APP)
def conversation(
    cli: Cli,
    session: Session,
    *,
    turn: OfTurn = None,
    limit: Limit = 20,
    utc: Utc = False,
    iso: Iso = False,
) -> None:
    """Show what people wrote and what the agent said, whole, newest last."""
    found = cli.api.pages(session_path(session, "conversation"), limit, newest=True, turn=turn)
    if cli.as_json:
        cli.json(found)
        return
    if not found:
        cli.lines("no messages")
    times = Times(utc, iso)
    for each in found:
        who = each.get("by") or ("a person" if each["role"] == "user" else "agent")
        run = f"run {each['run_id']}" if each["run_id"] is not None else "queued"
        cli.lines(f"{times.of(each['at'])}  {run}  {who}:{_omitted(each)}")
        cli.text(each["text"])


@verb(APP)
def trigger(cli: Cli, session: Session, *, reason: Reason = "", key: Key = None) -> None:
    """Request a turn now."""
    body = {"reason": reason} if reason else {}
    _receipt(cli, cli.api.post(session_path(session, "trigger"), body, key=key))


def _receipt(cli: Cli, receipt: Row) -> None:
    """Print the proof that an input was accepted."""
    text = (
        f"accepted by {receipt['session']} as {receipt['input_id']} (journal sequence {receipt['sequence']})"
    )
    if receipt.get("replayed"):
        text += "; already accepted before"
    cli.say(receipt, text, *(f"queued: {each}" for each in holding.blocked_by(receipt)))


def order_done(cli: Cli, control: Row) -> None:
    """Print the proof that an order was carried out."""
    more = control.get("more", {})
    kind = f"{more['which']} changed" if more.get("which") else str(control["kind"]).replace("_", " ")
    text = f"{control['session']}: {kind} (journal sequence {control['sequence']}); status: {control['session_status']}"
    lines = [text + ("; already done before" if control.get("replayed") else "")]
    if "archived" in more:
        lines.append(f"turns archived: {more['archived']['turns']}")
    if "superseded" in more:
        lines.append(f"queued inputs discarded: {more['superseded']['count']}")
    if control.get("never_start"):
        lines.append(f"will not start: {', '.join(control['never_start'])}")
    lines += [
        f"too late for {each['call']} {each['tool']}: {each['note']}" for each in control.get("too_late", ())
    ]
    lines += control.get("notes", ())
    lines += [f"blocked: {each}" for each in holding.blocked_by({**control, "session_status": None})]
    cli.say(control, *lines)
