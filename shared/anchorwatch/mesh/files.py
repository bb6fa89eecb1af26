"""The paths within a data directory, and how private files are written."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchorwatch.core.errors import Refused

PRIVATE_DIR = 0o700
PRIVATE_FILE = 0o600
PRIVATE_UMASK = 0o077
"""For each process of a mesh: what it creates belongs to its owner only."""
_OTHERS = 0o077
LOG_BYTES_MAX = 10 * 1024 * 1024
LOG_GENERATIONS = 3
LINE_CHARS_MAX = 16 * 1024
REASON_CHARS_MAX = 300


@dataclass(frozen=True, slots=True)
class DataDir:
    """The paths within a data directory, ``.anchorwatch`` by default."""

    root: Path

    @classmethod
    def at(cls, path: Path) -> DataDir:
        """The data directory at ``path``, as an absolute path: the services may run elsewhere."""
        return cls(path.expanduser().absolute())

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def mesh(self) -> Path:
        return self.root / "mesh.json"

    @property
    def remembered(self) -> Path:
        return self.root / "remembered.json"

    @property
    def credentials(self) -> Path:
        return self.root / "credentials.json"

    @property
    def nats_config(self) -> Path:
        return self.root / "nats.conf"

    @property
    def nats_store(self) -> Path:
        return self.root / "nats"

    @property
    def nats_aside(self) -> Path:
        """The files of journal, events and agents as they were before a start of the server that took some away."""
        return self.root / "nats-aside"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def control(self) -> Path:
        return self.root / "control.sock"

    def log(self, instance: str) -> Path:
        """The log file of a process."""
        return self.logs / f"{instance}.log"

    def make(self) -> None:
        """Create the directory, or take the access of other users away from an existing one.

        Raises:
            Refused: it cannot be created, written or made private, such as one of another user.
        """
        try:
            self.root.mkdir(mode=PRIVATE_DIR, parents=True, exist_ok=True)
            self.logs.mkdir(mode=PRIVATE_DIR, exist_ok=True)
            self._make_private()
        except OSError as error:
            raise Refused(
                f"the data directory {self.root} cannot be used: {error.filename}: {error.strerror}",
                hint="choose another with --data-dir",
            ) from None
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise Refused(
                f"the data directory {self.root} is not writable", hint="choose another with --data-dir"
            )

    def _make_private(self) -> None:
        # The root first: from then on no other user can open what is inside.
        _close_to_others(self.root)
        for directory, directories, files in os.walk(self.root):
            for name in (*directories, *files):
                # A running mesh replaces files at any time.
                with contextlib.suppress(FileNotFoundError):
                    _close_to_others(Path(directory, name))


def _close_to_others(path: Path) -> None:
    """Take the access of group and others away; a link is not followed, what it leads to may be shared on purpose."""
    mode = path.lstat().st_mode
    if mode & _OTHERS and not stat.S_ISLNK(mode):
        path.chmod(stat.S_IMODE(mode) & ~_OTHERS)


def write_private(path: Path, text: str) -> None:
    """Put ``text`` at ``path`` at once: a reader sees the old file or the new one, and only its owner sees either."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(PRIVATE_FILE)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_private_json(path: Path, value: Any) -> None:  # noqa: ANN401 - JSON is any of six types
    """``write_private`` of JSON that people can read."""
    write_private(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object at ``path``; None when there is none.

    Raises:
        Refused: it is there and cannot be read.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Refused(
            f"{path} cannot be read: {error}", hint="restore it from a copy, or move it away"
        ) from None
    if not isinstance(value, dict):
        raise Refused(f"{path} does not hold a JSON object", hint="restore it from a copy, or move it away")
    return value


def rotate(path: Path) -> None:
    """Move a log that has grown too long aside; the oldest goes."""
    try:
        if path.stat().st_size < LOG_BYTES_MAX:
            return
    except FileNotFoundError:
        return
    for generation in range(LOG_GENERATIONS - 1, 0, -1):
        older = path.with_name(f"{path.name}.{generation}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{generation + 1}"))
    path.replace(path.with_name(f"{path.name}.1"))


def last_line(path: Path, chars_max: int = REASON_CHARS_MAX) -> str:
    """The last line of a log, to say why a process ended; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LINE_CHARS_MAX))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:chars_max] if lines else ""


def last_reason(path: Path) -> str:
    """Why a process ended, by its log: the reason that its last line gives, else that line."""
    line = last_line(path, chars_max=LINE_CHARS_MAX)
    try:
        told = json.loads(line)
    except ValueError:
        told = None
    reason = told.get("reason") if isinstance(told, dict) else None
    return (reason if isinstance(reason, str) else line)[:REASON_CHARS_MAX]
