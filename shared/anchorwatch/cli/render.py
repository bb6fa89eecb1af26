"""Output of verbs: plain text without colour for people, JSON for programs. Nothing printed can control a terminal."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import Any, TextIO

MS = 1000
TEXT_CHARS_MAX = 200
LINE_CHARS_MAX = 2000
INDENT = "  "
LAST_CHARS_MIN = 24
"""Least width of a last column that is wrapped; with less room, lines are cut."""
UNKNOWN = "unknown"
_TIMES = frozenset({"at", "since", "until"})
_TIME_ENDS = ("_at", "_timestamp")

Row = Mapping[str, Any]


# ------------------------------------------------------------ the sanitiser


def visible(text: str) -> str:
    r"""``text`` with every character that is not printable as its JSON escape: ESC, BEL, C1, bidirectional marks, surrogates.

    Line feeds and tabs stay. In JSON text such characters occur only within strings, so the value stays the same.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in "\n\t" else _escape(each) for each in text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


class SafeStream:
    """A text stream that writes only `visible` text. ``main`` runs every verb with it as stdout and as stderr."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the stream's own attributes
        return getattr(self._stream, name)


# ------------------------------------------------------------ lists and details


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list: its title and the field that it shows; the title's own name if none is given.

    ``field``: a name, several names of which the first that has a value counts ("text|error"), or a function of the row.
    """

    title: str
    field: str | Callable[[Row], Any] = ""
    chars_max: int = TEXT_CHARS_MAX

    def of(self, row: Row) -> Any:  # noqa: ANN401 - any JSON value
        if callable(self.field):
            return self.field(row)
        names = (self.field or self.title).split("|")
        name = next((name for name in names if row.get(name) is not None), "")
        return local_time(row[name]) if _is_time(name) else row.get(name)


class Output:
    """What a verb prints: JSON with ``--json``, else text, in which every value stays within its line."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def rows(
        self,
        rows: Sequence[Row],
        columns: Sequence[Column],
        empty: str,
        details: Callable[[Row], Sequence[str]] = lambda _: (),
    ) -> None:
        """Print a list; ``empty`` if it has no rows. ``details``: lines below a row.

        On a terminal the last column and the details wrap to its width. What is cut is announced on stderr.
        """
        if self.as_json:
            self.json(rows)
            return
        if not rows:
            print(empty)
            return
        width = terminal_width()
        whole = [[cell(each.of(row)) for each in columns] for row in rows]
        cells = [
            [_cut(text, each.chars_max) for text, each in zip(row, columns, strict=True)] for row in whole
        ]
        head, *blocks = table_rows([each.title for each in columns], cells, width)
        lines = head.splitlines()
        for row, block in zip(rows, blocks, strict=True):
            lines += [*block.splitlines(), *wrapped(details(row), width)]
        fitted = [_cut(line, width) for line in lines] if width else lines
        print("\n".join(fitted))
        if cells != whole or fitted != lines:
            print("some values are shortened; --json prints them in full", file=sys.stderr)

    def fields(self, value: Row) -> None:
        """Print one thing: a line for each field, nested values indented below their name."""
        if self.as_json:
            self.json(value)
        else:
            print("\n".join(fields(value)))

    def say(self, value: Any, *lines: str) -> None:  # noqa: ANN401 - any JSON value
        """Print ``lines`` for people, ``value`` for programs."""
        if self.as_json:
            self.json(value)
        else:
            self.lines(*lines)

    @staticmethod
    def lines(*lines: str) -> None:
        """Print lines for people, at once; each stays one line, whatever its values hold."""
        for line in lines:
            print(_cut(" ".join(line.splitlines()), LINE_CHARS_MAX), flush=True)

    @staticmethod
    def text(text: str) -> None:
        """Print a text whole and indented, so that none of its lines looks like one of ours."""
        for line in text.splitlines() or [""]:
            print(f"{INDENT}{line}".rstrip(), flush=True)

    @staticmethod
    def json(value: Any) -> None:  # noqa: ANN401 - any JSON value
        """Print JSON, indented."""
        json.dump(value, sys.stdout, ensure_ascii=False, indent=2, default=str)
        print()


def table(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Aligned columns; the last one is not padded, and wraps on a terminal."""
    cells = [[_cut(cell(each), TEXT_CHARS_MAX) for each in row] for row in rows]
    return "\n".join(table_rows(titles, cells, terminal_width()))


def table_rows(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """The titles and each row as text, in aligned columns. The last column wraps at ``width``, if it has room."""
    lines = [titles, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(titles) - 1)]
    indent = sum(widths) + len(INDENT) * len(widths)
    room = width - indent if width else 0
    texts = []
    for line in lines:
        last = line[-1]
        if room >= LAST_CHARS_MIN:
            last = ("\n" + " " * indent).join(_wrap(last, room))
        padded = [each.ljust(width) for each, width in zip(line, widths, strict=False)]
        texts.append(INDENT.join([*padded, last]).rstrip())
    return texts


def wrapped(lines: Sequence[str], width: int | None) -> list[str]:
    """Lines below a row: indented, and wrapped at ``width``."""
    indent, more = INDENT * 2, INDENT * 3
    plain = [one_line(visible(line), LINE_CHARS_MAX) for line in lines]
    if not width:
        return [f"{indent}{line}" for line in plain]
    return [
        start + part
        for line in plain
        for start, part in zip(_starts(indent, more), _wrap(line, width - len(more)), strict=False)
    ]


def _starts(first: str, more: str) -> Iterator[str]:
    return chain([first], repeat(more))


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 1), break_on_hyphens=False) or [""]


def terminal_width() -> int | None:
    """Columns of the terminal; None if the output goes to a file or a program, which may search it."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def cell(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """A value of a table, in one line."""
    return "-" if value is None else " ".join(visible(str(value)).split())


def fields(thing: Row, nothing: str = "-") -> list[str]:
    """A line for each field: its name and its value. ``nothing`` is printed for a null; of facts that is ``unknown``."""
    width = max((len(str(name)) for name in thing), default=0)
    lines = []
    for name, value in thing.items():
        inside = _inside(value, UNKNOWN if name == "facts" else nothing)
        label = one_line(name)
        if inside:
            lines += [label, *(f"{INDENT}{line}" for line in inside)]
        else:
            lines.append(f"{label.ljust(width)}  {_plain(str(name), value, nothing)}".rstrip())
    return lines


def _inside(value: Any, nothing: str) -> list[str]:  # noqa: ANN401 - any JSON value
    """The lines of an object or a list; none of a scalar, or of an empty one."""
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
    if _is_time(name):
        return local_time(value)
    return one_line(value, chars_max=LINE_CHARS_MAX)


def _is_time(name: str) -> bool:
    return name in _TIMES or name.endswith(_TIME_ENDS)


# ------------------------------------------------------------ values


def local_time(value: Any) -> str:  # noqa: ANN401 - as the API gives it: text, Unix milliseconds, or nothing
    """A time in this machine's zone, ISO 8601, whole seconds; ``-`` for none."""
    if value is None or value == "":
        return "-"
    try:
        return _instant(value).astimezone().isoformat(sep=" ", timespec="seconds")
    except (ValueError, OverflowError):
        return one_line(value)


def _instant(value: float | str) -> datetime:
    if isinstance(value, str):
        return datetime.fromisoformat(value)
    return datetime.fromtimestamp(value / MS, UTC)


@dataclass(frozen=True, slots=True)
class Times:
    """How a list prints times: short and local by default, in UTC, or as ISO 8601 with the offset."""

    utc: bool = False
    iso: bool = False

    def of(self, value: Any) -> str:  # noqa: ANN401 - as `local_time`
        """Such as ``18:56:43`` for today and ``2026-03-17 18:56:43`` for another day; ``-`` for none."""
        if value is None or value == "":
            return "-"
        zone = UTC if self.utc else None
        try:
            when = _instant(value).astimezone(zone)
        except (ValueError, OverflowError):
            return one_line(value)
        if self.iso:
            return when.isoformat(timespec="seconds").replace("+00:00", "Z")
        today = when.date() == datetime.now(UTC).astimezone(zone).date()
        return when.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S") + ("Z" if self.utc else "")


def one_line(value: Any, chars_max: int = TEXT_CHARS_MAX) -> str:  # noqa: ANN401 - any JSON value
    """``value`` in one line, cut at a bound."""
    text = "-" if value is None else " ".join(str(value).split())
    return _cut(text, chars_max)


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def many(count: int, what: str) -> str:
    """``1 turn``, ``2 turns``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
