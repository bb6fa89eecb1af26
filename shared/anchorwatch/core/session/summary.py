"""Summaries of turns that the conversation no longer shows: written by a model, or derived from the records.

A summary is data and gives no orders: objectives, constraints and labelled lines are kept elsewhere, verbatim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from anchorwatch.core.session.critical import CRITICAL
from anchorwatch.core.session.outputs import input_handle
from anchorwatch.core.session.state import Input, PastTurn, Summary
from anchorwatch.core.session.wakes import tally

LINES_MAX = 60
LINE_CHARS_MAX = 240
TEXT_CHARS_MAX = LINES_MAX * (LINE_CHARS_MAX + 1)
_SAID_CHARS_MAX = 120
_GAP = "(of the oldest runs,"
_GAP_CHARS = 80
LABELS = (
    CRITICAL,
    "ANCHOR (",
    "OBJECTIVES",
    "CONSTRAINTS",
    "SAID BY PEOPLE",
    "RULES,",
    "OBSERVATION ",
    "TASK:",
    "WAKES",
    "SUMMARY OF RUNS",
)
"""Labels of the prompt; a line of a summary must not start with one."""


def unusable(text: str) -> str | None:
    """Why a text is not a valid summary; None: it is."""
    if not text.strip():
        return "it is empty"
    if len(text) > TEXT_CHARS_MAX:
        return f"it has {len(text)} characters; the limit is {TEXT_CHARS_MAX}"
    for line in text.splitlines():
        plain = line.lstrip(" \t#*->|_`").upper()
        if label := next((each for each in LABELS if plain.startswith(each)), None):
            return f"a line starts with {label}, a label of the prompt"
    return None


def from_records(
    before: Summary | None, turns: Sequence[PastTurn], chars_max: int = TEXT_CHARS_MAX
) -> Summary:
    """The summary of ``before`` and ``turns`` (oldest first, at least one), a line for each turn.

    If it is too long, its first lines are dropped, and it says how many turns are missing.
    """
    lines = before.text.splitlines() if before else []
    count = (before.turns if before else 0) + len(turns)
    return _told(turns[-1].run_id, count, [*lines, *map(_line, turns)], chars_max)


def after(before: Summary, later: Summary) -> Summary:
    """One summary of both, ``before`` first. Bounded as `from_records` is."""
    lines = [*before.text.splitlines(), *later.text.splitlines()]
    return _told(later.through_run, before.turns + later.turns, lines, TEXT_CHARS_MAX)


def _told(through_run: int, turns: int, lines: list[str], chars_max: int) -> Summary:
    told = [line for line in lines if not line.startswith(_GAP)]
    room = chars_max - _GAP_CHARS
    kept: list[str] = []
    for line in reversed(told):
        room -= len(line) + 1
        if room < 0 or len(kept) == LINES_MAX - 1:
            break
        kept.insert(0, line)
    if len(kept) < len(lines):
        kept = [f"{_GAP} {turns - len(kept)} turns are omitted", *kept]
    return Summary(through_run, turns, "\n".join(kept))


def _line(turn: PastTurn) -> str:
    parts = [f"run {turn.run_id}: {turn.outcome}"]
    if wakes := turn.tally or tally(turn.inputs):
        # Without a tally only the number of further inputs is known.
        more = f" and {turn.skipped} more" if turn.skipped and not turn.tally else ""
        woken = ", ".join(f"{count} × {family}" for family, count in wakes)
        parts.append(f"woken by {woken}{more}")
    heard = (*turn.inputs, *(each for step in turn.steps for each in step.joined))
    said = [_said(each) for each in heard if each.kind == "message"]
    if said:
        parts.append(f"a person wrote: {' / '.join(said)}")
    calls = Counter((call.tool, call.resource, call.state) for step in turn.steps for call in step.calls)
    if calls:
        parts.append(", ".join(_call(*what, count) for what, count in calls.items()))
    elif turn.reason:
        parts.append(" ".join(turn.reason.split()))
    line = "; ".join(parts)
    return line if len(line) <= LINE_CHARS_MAX else f"{line[: LINE_CHARS_MAX - 1]}…"


def _said(message: Input) -> str:
    text = " ".join(message.text.split())
    if len(text) <= _SAID_CHARS_MAX:
        return text
    return f"{text[: _SAID_CHARS_MAX - 1]}… [{input_handle(message.sequence)}]"


def _call(tool: str, resource: str, state: str, count: int) -> str:
    of = f" {resource}" if resource else ""
    times = f" × {count}" if count > 1 else ""
    return f"{tool}{of} {state}{times}"
