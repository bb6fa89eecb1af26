"""How things are shown to people: plain text that needs no colour."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

MS = 1000
TEXT_CHARS_MAX = 200


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


def one_line(value: Any, chars_max: int = TEXT_CHARS_MAX) -> str:  # noqa: ANN401 - any JSON value
    """``value`` in one line, cut at a bound; what could move a terminal's cursor is left out."""
    text = "-" if value is None else " ".join(str(value).split())
    text = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def many(count: int, what: str) -> str:
    """``1 turn``, ``2 turns``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
