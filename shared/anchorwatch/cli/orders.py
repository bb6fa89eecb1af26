"""Verbs that order a session: pause, resume, cancel, steer, delete, reset, and its objectives and constraints."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from anchorwatch.cli import holding
from anchorwatch.cli.render import LINE_CHARS_MAX, Column, Row, Times, many
from anchorwatch.cli.sessions import order_done
from anchorwatch.cli.verb import (
    APP,
    Cli,
    DryRun,
    Iso,
    Key,
    Reason,
    Session,
    Text,
    Utc,
    Yes,
    confirm,
    noun,
    read_text,
    session_path,
    verb,
)
from anchorwatch.core.errors import BadInput, NotFound

CANARY_S = 60.0
PAUSE_S = 0.3
Rule = Annotated[
    str,
    typer.Option(
        "--rule", metavar="CEL", help="Condition of every command, over command, facts, observation."
    ),
]
Turn = Annotated[
    str, typer.Argument(metavar="TURN", help="The running turn: its id or run number.", show_default=False)
]


@verb(APP)
def pause(cli: Cli, session: Session, *, reason: Reason = "", key: Key = None) -> None:
    """Pause a session: no new turns or commands. Inputs are queued."""
    _order(cli, session, "pause", {"reason": reason}, key)


@verb(APP)
def resume(cli: Cli, session: Session, *, reason: Reason = "", key: Key = None) -> None:
    """Resume a paused session."""
    _order(cli, session, "resume", {"reason": reason}, key)


@verb(APP)
def cancel(cli: Cli, session: Session, turn: Turn, *, reason: Reason = "", key: Key = None) -> None:
    """End the running turn, and list the commands that had already started."""
    _order(cli, session, "cancel", {"turn": turn, "reason": reason}, key)


@verb(APP)
def steer(cli: Cli, session: Session, turn: Turn, text: Text, *, key: Key = None) -> None:
    """Send a message to the running turn, for its next step."""
    _order(cli, session, "steer", {"turn": turn, "text": read_text(text)}, key)


@verb(APP)
def delete(cli: Cli, session: Session, *, reason: Reason = "", yes: Yes = False, key: Key = None) -> None:
    """Delete a session for good: cancel its turn, and retire its name."""
    if not yes and cli.api.get(session_path(session, "anchor"))["status"] != "deleted":
        confirm(f"Delete session {session}? Its name cannot be used again.")
    _order(cli, session, "delete", {"reason": reason}, key)


def _order(cli: Cli, session: str, order: str, body: dict[str, Any], key: str | None) -> None:
    order_done(cli, cli.api.post(session_path(session, order), body, key=key))


# ------------------------------------------------------------ objectives and constraints


def _directives(name: str, which: str, text: str) -> None:
    group = noun(APP, name, text, word="list")

    @verb(group, "list", text=f"List the {which} with their numbers.")
    def show(cli: Cli, session: Session) -> None:
        found = cli.api.get(session_path(session, "anchor"))
        items: list[str] = found[which]
        lines = [f"{number}  {item}{_binding(found, which, item)}" for number, item in enumerate(items, 1)]
        cli.say(items, *(lines or [f"no {which}"]))

    @verb(group, "set", text=f"Replace all {which}; without TEXT, remove them.")
    def replace(
        cli: Cli,
        session: Session,
        texts: Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...")] = None,
        *,
        key: Key = None,
    ) -> None:
        _order(cli, session, which, {"change": "set", "items": texts or []}, key)

    if which == "constraints":

        @verb(group, "add", text="Add a constraint; with --rule, executors enforce it.")
        def add_constraint(
            cli: Cli, session: Session, text: Text, *, rule: Rule = "", key: Key = None
        ) -> None:
            more = {"rule": rule} if rule else {}
            _order(cli, session, which, {"change": "add", "items": [read_text(text)], **more}, key)
    else:

        @verb(group, "add", text=f"Add one to the {which}.")
        def add(cli: Cli, session: Session, text: Text, *, key: Key = None) -> None:
            _order(cli, session, which, {"change": "add", "items": [read_text(text)]}, key)

    @verb(group, "remove", text=f"Remove one of the {which}, by its text or number.")
    def remove(cli: Cli, session: Session, text: Text, *, key: Key = None) -> None:
        item = _numbered(cli, session, which, int(text)) if text.isdecimal() else read_text(text)
        _order(cli, session, which, {"change": "remove", "items": [item]}, key)


def _binding(anchor: Row, which: str, item: str) -> str:
    """What binds a directive: its rule, or the turns that missed it."""
    if which == "objectives":
        missed = (anchor.get("objectives_missed") or {}).get(item)
        return f" [missed by the last {many(missed, 'turn')}]" if missed else ""
    rule = (anchor.get("constraint_rules") or {}).get(item)
    return f" [enforced: {rule}]" if rule else " [not enforced]"


def _numbered(cli: Cli, session: str, which: str, number: int) -> str:
    """The text of that number. Removal is by text, so that a list that has changed since loses no other entry.

    Raises:
        NotFound: the list is shorter.
    """
    items: list[str] = cli.api.get(session_path(session, "anchor"))[which]
    if not 1 <= number <= len(items):
        raise NotFound(f"session {session} has {len(items)} {which}", hint=f"`anchorwatch anchor {session}`")
    return items[number - 1]


_directives("objective", "objectives", "Change the objectives of a session: what it works for.")
_directives(
    "constraint",
    "constraints",
    "Change the constraints of a session: texts for the model, or enforced rules.",
)


# ------------------------------------------------------------ labelled lines

CRITICAL = noun(APP, "critical", "Change the lines labelled CRITICAL: that every prompt holds.", word="list")
Line = Annotated[
    str, typer.Argument(metavar="LINE", help="The line, or its number in the list.", show_default=False)
]


@verb(CRITICAL, "list")
def list_critical(cli: Cli, session: Session, *, utc: Utc = False, iso: Iso = False) -> None:
    """List the labelled lines of a session: who wrote each, and when."""
    lines, times = _labelled(cli, session), Times(utc, iso)
    numbered = [{"n": number, **each} for number, each in enumerate(lines, 1)]
    columns = (
        Column("n"),
        Column("written", lambda row: times.of(row["at"])),
        Column("by", lambda row: row["by"] or "unknown"),
        Column("line", _shown_line, chars_max=LINE_CHARS_MAX),
    )
    cli.rows(numbered if not cli.as_json else lines, columns, "no labelled lines")


def _shown_line(row: Row) -> str:
    return row["text"] if row["in_prompt"] else f"{row['text']} [from the next turn on]"


@verb(CRITICAL, "remove")
def remove_critical(cli: Cli, session: Session, line: Line, *, reason: Reason = "", key: Key = None) -> None:
    """Withdraw a labelled line from later prompts."""
    _order(cli, session, "critical", {"line": _line(cli, session, line), "reason": reason}, key)


@verb(CRITICAL, "replace")
def replace_critical(
    cli: Cli, session: Session, line: Line, text: Text, *, reason: Reason = "", key: Key = None
) -> None:
    """Put a corrected line in the place of a labelled line."""
    body = {"line": _line(cli, session, line), "text": read_text(text).strip(), "reason": reason}
    _order(cli, session, "critical", body, key)


def _line(cli: Cli, session: str, line: str) -> str:
    """The text of a labelled line that is named by its text or number.

    Raises:
        NotFound: the list is shorter.
    """
    if not line.isdecimal():
        return read_text(line).strip()
    lines = _labelled(cli, session)
    if not 1 <= int(line) <= len(lines):
        hint = f"`anchorwatch critical list {session}` lists them"
        raise NotFound(f"session {session} has {many(len(lines), 'labelled line')}", hint=hint)
    return str(lines[int(line) - 1]["text"])


def _labelled(cli: Cli, session: str) -> list[Row]:
    found: list[Row] = cli.api.get(session_path(session, "critical"))["lines"]
    return found


# ------------------------------------------------------------ reset


@verb(APP)
def reset(
    cli: Cli,
    session: Session,
    *,
    dry_run: DryRun = False,
    confirmation: Annotated[
        str | None, typer.Option("--confirm", metavar="C", help="Confirmation that --dry-run printed.")
    ] = None,
    yes: Yes = False,
    wait_s: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", help="How long to wait for the canary turn.", min=0)
    ] = CANARY_S,
    reason: Reason = "",
    key: Key = None,
) -> None:
    """Archive the conversation, keep the anchor, and run a canary turn."""
    path = session_path(session, "reset")
    if dry_run:
        effect = cli.api.get(path)
        cli.say(effect, *_effect_of_reset(effect))
        return
    if confirmation is None and not yes:
        raise BadInput(
            "a reset needs a confirmation",
            hint=f"`anchorwatch reset {session} --dry-run` prints it for --confirm; --yes skips it",
        )
    control = cli.api.post(path, {"confirmation": confirmation, "reason": reason}, key=key)
    if not cli.as_json:
        order_done(cli, control)
    ran = _canary(cli, session, control, wait_s)
    if blocked := holding.blocked_by(control):
        text = f"the canary turn is queued: {blocked[0]}"
    elif ran is None:
        text = f"the canary turn has not ended within {wait_s:g} s: `anchorwatch wakes {session}`"
    else:
        text = f"the canary turn ran: turn {ran['run_id']} ended {ran['outcome']}"
    cli.say({**control, "canary_run": ran}, text)


@verb(APP, "undo-reset")
def undo_reset(cli: Cli, session: Session, *, reason: Reason = "", key: Key = None) -> None:
    """Restore the conversation that the last reset archived."""
    _order(cli, session, "undo-reset", {"reason": reason}, key)


# ------------------------------------------------------------ emergency


@verb(APP, "end-emergency")
def end_emergency(
    cli: Cli,
    session: Session,
    *,
    reason: Annotated[
        str,
        typer.Option(
            "--reason", metavar="TEXT", help="Why it is over, recorded in the journal.", show_default=False
        ),
    ],
    key: Key = None,
) -> None:
    """End the open emergency of a session that observations no longer show."""
    _order(cli, session, "end-emergency", {"reason": reason}, key)


def _effect_of_reset(effect: Row) -> list[str]:
    kept, discarded = effect["kept"], effect["disposed"]
    counts = (
        many(len(kept["objectives"]), "objective"),
        many(len(kept["constraints"]), "constraint"),
        many(len(kept["critical"]), "labelled fact"),
        f"the facts, and the run count ({kept['run_count']})",
    )
    lines = [
        f"turns archived: {effect['archived']['turns']}",
        f"kept: {', '.join(counts)}",
        f"queued inputs discarded: {discarded['count']}",
        *(f"  {each['kind']} {each['input_id']}  {each['text']}" for each in discarded["inputs"]),
    ]
    if effect.get("cancelled_turn"):
        lines.append(f"running turn cancelled: {effect['cancelled_turn']}")
    return [*lines, f"confirmation: {effect['confirmation']}"]


def _canary(cli: Cli, session: str, control: Row, wait_s: float) -> dict[str, Any] | None:
    """The turn that took the canary, once it has ended; None where it is blocked, or has not ended in time."""
    if holding.blocked_by(control):
        return None
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        # The canary directly follows the reset and its receipt.
        anchor = cli.api.get(session_path(session, "anchor"))
        if anchor["status"] == "idle" and anchor["inputs_through"] >= control["sequence"] + 2:
            return {"run_id": anchor["last_run_id"], "outcome": anchor["last_run_outcome"]}
        time.sleep(PAUSE_S)
    return None
