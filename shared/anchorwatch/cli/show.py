"""How things are shown to people: plain text that needs no colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

MS = 1000
TEXT_CHARS_MAX = 200
LINE_CHARS_MAX = 2000
INDENT = "  "
UNKNOWN = "unknown"
_TIMES = frozenset({"at", "since", "until"})
_TIME_ENDS = ("_at", "_timestamp")


def local_time(value: Any) -> str:  # noqa: ANN401 - as the API gives it: text, Unix milliseconds, or nothing
    """A time in this machine's zone, ISO 8601, whole seconds; ``-`` when there is none."""
    if value is None or value == "":
        return "-"
    try:
        when = (
            datetime.fromtimestamp(value / MS, UTC)
            if isinstance(value, int | float)
            else datetime.fromisoformat(value)
        )
        return when.astimezone().isoformat(sep=" ", timespec="seconds")
    except (ValueError, OverflowError):
        return str(value)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Aligned columns; the last one may be as long as it likes. Nothing is cut: output may be searched."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    lines = [list(columns), *cells]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns) - 1)]
    return "\n".join(
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]
        ).rstrip()
        for line in lines
    )


def fields(thing: Mapping[str, Any], nothing: str = "-") -> list[str]:
    """A line for each field: its name, and what stands there. An object or a list stands below its name, indented.

    ``nothing`` stands where there is nothing. Of facts, that is what is unknown.
    """
    width = max((len(str(name)) for name in thing), default=0)
    lines = []
    for name, value in thing.items():
        inside = _inside(value, UNKNOWN if name == "facts" else nothing)
        if inside:
            lines += [str(name), *(f"{INDENT}{line}" for line in inside)]
        else:
            lines.append(f"{str(name).ljust(width)}  {_plain(str(name), value, nothing)}".rstrip())
    return lines


def _inside(value: Any, nothing: str) -> list[str]:  # noqa: ANN401 - any JSON value
    """The lines of an object or a list; none of what is neither, or empty."""
    if isinstance(value, Mapping):
        return fields(value, nothing)
    lines = []
    for each in value if isinstance(value, list | tuple) else ():
        first, *more = _inside(each, nothing) or [_plain("", each, nothing)]
        lines += [f"- {first}", *(f"{INDENT}{line}" for line in more)]
    return lines


def _plain(name: str, value: Any, nothing: str) -> str:  # noqa: ANN401 - any JSON value
    if value is None:
        return nothing
    if value in ("", [], {}):
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if name in _TIMES or name.endswith(_TIME_ENDS):
        return local_time(value)
    return one_line(value, chars_max=LINE_CHARS_MAX)


def one_line(value: Any, chars_max: int = TEXT_CHARS_MAX) -> str:  # noqa: ANN401 - any JSON value
    """``value`` in one line, cut at a bound; what could move a terminal's cursor is left out."""
    text = "-" if value is None else " ".join(str(value).split())
    text = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def many(count: int, what: str) -> str:
    """``1 turn``, ``2 turns``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
