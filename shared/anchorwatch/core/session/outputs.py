"""Excerpts of long texts: kind, size, beginning and end, and the handle under which the whole text can be read.

An excerpt starts with a header line such as ``[call 15.2.1: JSON object, 48,213 characters, cut]``. A shorter excerpt of an
excerpt keeps that header. Handles: ``call RUN.STEP.N`` (a tool's output), ``words RUN.STEP`` (the model's own words) and
``input SEQUENCE`` (an input, by its place in the journal).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

LINE_CHARS_MAX = 200
FIELDS_SHOWN_MAX = 12
_HEADER = re.compile(r"\[(?:call \d+\.\d+\.\d+|words \d+\.\d+|input \d+): [^\n\]]{1,80}, cut\]")
_GAP = "…"


def stand_in(text: str, handle: str, chars_max: int) -> str:
    """``text`` if it has at most ``chars_max`` characters, else an excerpt of about that size, by its structure.

    The header is never shortened, so an excerpt may exceed a very small ``chars_max``.
    """
    if len(text) <= chars_max:
        return text
    head, _, body = text.partition("\n")
    if _is_header_of(head, handle):
        return _joined(head, _ends(body.splitlines(), chars_max - len(head)))
    kind, outline = _outline(text)
    header = _header(handle, kind, text)
    return _joined(header, outline(chars_max - len(header)))


def excerpt(text: str, handle: str, chars_max: int) -> str:
    """As `stand_in`, for what a person or the model wrote: its beginning and its end, without regard to its structure."""
    if len(text) <= chars_max:
        return text
    head, _, body = text.partition("\n")
    if _is_header_of(head, handle):
        return _joined(head, _middle_out(body, chars_max - len(head) - 1))
    header = _header(handle, "text", text)
    return _joined(header, _middle_out(text, chars_max - len(header) - 1))


def _header(handle: str, kind: str, text: str) -> str:
    return f"[{handle}: {kind}, {len(text):,} characters, cut]"


def _is_header_of(line: str, handle: str) -> bool:
    return line.startswith(f"[{handle}: ") and _HEADER.fullmatch(line) is not None


def call_handle(run_id: int, step: int, n: int) -> str:
    """The handle of a tool's output."""
    return f"call {run_id}.{step}.{n}"


def words_handle(run_id: int, step: int) -> str:
    """The handle of the model's own words."""
    return f"words {run_id}.{step}"


def input_handle(sequence: int) -> str:
    """The handle of an input."""
    return f"input {sequence}"


def is_stand_in(text: str) -> bool:
    """Whether a text is an excerpt."""
    return _HEADER.match(text) is not None


def _joined(header: str, body: str) -> str:
    return f"{header}\n{body}" if body else header


def _outline(text: str) -> tuple[str, Callable[[int], str]]:
    """(the kind of text, a function that shows it in a given number of characters)."""
    value = _json(text)
    if isinstance(value, dict):
        return f"JSON object of {len(value)} fields", lambda room: _fields(value, room)
    if isinstance(value, list):
        lines = [_plain(each) for each in value]
        return f"JSON list of {len(value)}", lambda room: _ends(lines, room)
    lines = text.splitlines()
    if len(lines) > 1:
        return f"{len(lines):,} lines", lambda room: _ends(lines, room)
    return "text", lambda room: _middle_out(text, room)


def _json(text: str) -> object:
    if text[:1] not in "{[":
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _plain(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _fields(value: dict[str, Any], room: int) -> str:
    """The fields with plain values, and the names of the others."""
    lines = []
    for name, field in list(value.items())[:FIELDS_SHOWN_MAX]:
        match field:
            case dict():
                lines.append(f"{name}: object of {len(field)} fields")
            case list():
                lines.append(f"{name}: list of {len(field)}")
            case _:
                lines.append(f"{name}: {_middle_out(_plain(field), LINE_CHARS_MAX)}")
    if len(value) > FIELDS_SHOWN_MAX:
        lines.append(f"{_GAP} {len(value) - FIELDS_SHOWN_MAX} more fields")
    return _ends(lines, room)


def _ends(lines: Sequence[str], room: int) -> str:
    """As many first and last lines as fit; the first lines get the larger half."""
    cut = [_middle_out(line, LINE_CHARS_MAX) for line in lines if line.strip() and line != _GAP]
    if sum(len(line) + 1 for line in cut) <= room:
        return "\n".join(cut)
    first = _taken(cut, room // 2)
    last = _taken(cut[len(first) :][::-1], room - sum(len(line) + 1 for line in first) - 2)[::-1]
    return "\n".join((*first, _GAP, *last)) if first or last else ""


def _taken(lines: Sequence[str], room: int) -> list[str]:
    taken: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        taken.append(line)
    return taken


def _middle_out(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    if room <= len(_GAP) + 2:
        return ""
    half = (room - len(_GAP)) // 2
    return f"{text[: room - len(_GAP) - half]}{_GAP}{text[-half:]}"
