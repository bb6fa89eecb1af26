"""The paths in a data directory, private files, and log files."""

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
"""The umask of each process of a mesh: only the owner can access the files that it creates."""
_OTHERS = 0o077
LOG_BYTES_MAX = 10 * 1024 * 1024
LOG_GENERATIONS = 3
LINE_CHARS_MAX = 16 * 1024
REASON_CHARS_MAX = 300


@dataclass(frozen=True, slots=True)
class DataDir:
    """The paths in a data directory, ``.anchorwatch`` by default."""

    root: Path

    @classmethod
    def at(cls, path: Path) -> DataDir:
        """The data directory at ``path``, made absolute: services may run in another working directory."""
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
    def settings(self) -> Path:
        return self.root / "settings.json"

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
        """Copies of the files of journal, events and agents, from before a server start that removed some of their data."""
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
        """Create the directory, or remove the access of other users to an existing one.

        Raises:
            Refused: it cannot be created, written or made private; another user may own it.
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

    def remove_unused(self) -> None:
        """Remove what a start leaves that failed before it stored anything: its log, if it is empty, and empty directories."""
        if self.credentials.exists() or any(log.stat().st_size for log in self.logs.glob("*")):
            return
        for file in (self.lock, *self.logs.glob("*")):
            file.unlink(missing_ok=True)
        # A directory that holds anything else stays.
        with contextlib.suppress(OSError):
            for directory in (self.logs, self.nats_store, self.root):
                directory.rmdir()

    def _make_private(self) -> None:
        # The root first: from then on no other user can open a file inside.
        _remove_access(self.root)
        for directory, directories, files in os.walk(self.root):
            for name in (*directories, *files):
                # A running mesh replaces files at any time.
                with contextlib.suppress(FileNotFoundError):
                    _remove_access(Path(directory, name))


def _remove_access(path: Path) -> None:
    """Remove the access of group and others. Links are not followed: their targets may be shared on purpose."""
    mode = path.lstat().st_mode
    if mode & _OTHERS and not stat.S_ISLNK(mode):
        path.chmod(stat.S_IMODE(mode) & ~_OTHERS)


def write_private(path: Path, text: str) -> None:
    """Replace the file at ``path`` atomically and durably, readable by its owner only."""
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
    """Write indented JSON as `write_private` does."""
    write_private(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object at ``path``; None if there is no file.

    Raises:
        Refused: the file cannot be read, or is not a JSON object.
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
    """Rename a log of more than `LOG_BYTES_MAX`; the oldest generation is removed."""
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
    """The last line of a log; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LINE_CHARS_MAX))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:chars_max] if lines else ""


def last_reason(path: Path) -> str:
    """Why a process ended: the field ``reason`` of the last line of its log, else that line."""
    line = last_line(path, chars_max=LINE_CHARS_MAX)
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    reason = entry.get("reason") if isinstance(entry, dict) else None
    return (reason if isinstance(reason, str) else line)[:REASON_CHARS_MAX]
