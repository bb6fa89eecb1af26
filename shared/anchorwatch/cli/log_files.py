"""The log files of a mesh, merged by time and followed."""

from __future__ import annotations

import heapq
import json
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from anchorwatch.cli.render import Output, local_time
from anchorwatch.core.errors import NotFound

POLL_S = 0.2
READ_BYTES = 1 << 20
_NATS = re.compile(r"\[\d+\] (\d{4})/(\d\d)/(\d\d) (\d\d:\d\d:\d\d\.\d+) (.*)")
_SHOWN_ELSEWHERE = frozenset({"at", "event", "level", "logger", "service", "instance"})


@dataclass(frozen=True, slots=True, order=True)
class Line:
    """One line. ``at``: Unix seconds; a line without a time of its own has that of the line before."""

    at: float
    instance: str = field(compare=False)
    text: str = field(compare=False)
    entry: dict[str, Any] | None = field(compare=False, default=None)

    def as_json(self) -> dict[str, Any]:
        return {"instance": self.instance, **(self.entry if self.entry is not None else {"line": self.text})}

    def for_people(self) -> str:
        when = local_time(self.at * 1000) if self.at else "-"
        if self.entry is None:
            return f"{when}  {self.instance:<12}  {self.text}"
        more = " ".join(
            f"{name}={value}" for name, value in self.entry.items() if name not in _SHOWN_ELSEWHERE
        )
        level = self.entry.get("level", "")
        return f"{when}  {self.instance:<12}  {level:<7}  {self.entry.get('event', '')}  {more}".rstrip()


class LogFile:
    """One process's log, read from the beginning, and again from the beginning of the next file after a rotation."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.instance = path.stem
        self._at = 0.0
        self._read_to = 0
        self._inode = 0
        self._rest = b""

    def read(self) -> Iterator[Line]:
        """The complete lines that were written since the last call."""
        try:
            with self.path.open("rb") as file:
                size, inode = (stat := self.path.stat()).st_size, stat.st_ino
                if inode != self._inode or size < self._read_to:
                    self._read_to, self._inode, self._rest = 0, inode, b""
                file.seek(self._read_to)
                while block := file.read(READ_BYTES):
                    self._read_to += len(block)
                    *lines, self._rest = (self._rest + block).split(b"\n")
                    yield from map(self._line, lines)
        except FileNotFoundError:
            return

    def _line(self, raw: bytes) -> Line:
        text = raw.decode(errors="replace")
        entry = _entry(text)
        self._at = _time(text, entry) or self._at
        return Line(self._at, self.instance, text, entry)


def show(output: Output, directory: Path, service: str, *, limit: int | None, follow: bool) -> None:
    """Print the logs in ``directory``, oldest line first; with ``follow`` continue until Ctrl-C.

    Raises:
        NotFound: no process matches ``service``.
    """
    files: dict[Path, LogFile] = {}
    new = _new_files(files, directory, service)
    if not new and not follow:
        names = ", ".join(sorted(path.stem for path in directory.glob("*.log")))
        raise NotFound(
            f"no logs of {service or 'a mesh'} in {directory}",
            hint=f"there are logs of {names}" if names else "`anchorwatch up` starts a mesh",
        )
    first: Iterable[Line] = heapq.merge(*(file.read() for file in new))
    for line in first if limit is None else deque(first, maxlen=limit):
        _print(output, line)
    while follow:
        time.sleep(POLL_S)
        _new_files(files, directory, service)
        for line in sorted(line for file in files.values() for line in file.read()):
            _print(output, line)


def _new_files(files: dict[Path, LogFile], directory: Path, service: str) -> list[LogFile]:
    wanted = re.compile(rf"{re.escape(service)}(-\d+)?" if service else ".*")
    paths = [path for path in sorted(directory.glob("*.log")) if wanted.fullmatch(path.stem)]
    return [files.setdefault(path, LogFile(path)) for path in paths if path not in files]


def _print(output: Output, line: Line) -> None:
    if output.as_json:
        print(json.dumps(line.as_json(), ensure_ascii=False), flush=True)
    else:
        output.lines(line.for_people())


def _entry(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _time(text: str, entry: dict[str, Any] | None) -> float | None:
    """The time of a line of ours (ISO 8601), or of the NATS server's own form (local time)."""
    try:
        if entry is not None:
            return datetime.fromisoformat(str(entry["at"])).timestamp()
        if found := _NATS.match(text):
            year, month, day, clock, _ = found.groups()
            return datetime.fromisoformat(f"{year}-{month}-{day} {clock}").astimezone().timestamp()
    except (KeyError, ValueError):
        pass
    return None
