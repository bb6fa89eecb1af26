"""Server-sent events, as servers of chat.completions send them: bytes in, events out. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
ERROR = "error"


@dataclass(frozen=True, slots=True)
class Event:
    """``lines``: its data, line by line. ``error``: it is named one."""

    lines: tuple[str, ...]
    error: bool = False


class Events:
    """Splits a stream into events, whatever its chunk boundaries. Comments and unknown fields are ignored."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._lines: list[str] = []
        self._error = False

    def feed(self, part: bytes) -> list[Event]:
        """The events that end in this piece."""
        self._buffer += part
        found: list[Event] = []
        start = 0
        # A piece that ends no line is searched once, so that a long line does not cost its square.
        for end in _LINE_END.finditer(self._buffer, self._searched):
            found += self._take(bytes(self._buffer[start : end.start()]))
            start = end.end()
        del self._buffer[:start]
        self._searched = max(0, len(self._buffer) - 1)
        return found

    def close(self) -> list[Event]:
        """The last event of the stream, if no empty line follows it."""
        rest = bytes(self._buffer).removesuffix(b"\r")
        self._buffer.clear()
        found = self._take(rest) if rest else []
        return found + self._take(b"")

    def _take(self, line: bytes) -> list[Event]:
        if not line:
            event = Event(tuple(self._lines), self._error)
            self._lines, self._error = [], False
            return [event] if event.lines else []
        name, _, value = line.decode("utf-8", "replace").removeprefix("\ufeff").partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._lines.append(value)
            case "error":
                # Not a standard field; servers that fail during an answer send it.
                self._lines.append(value)
                self._error = True
            case "event" if value == ERROR:
                self._error = True
        return []
