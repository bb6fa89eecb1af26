"""Births: each worker's own word that it started, written as its first act.

The yard may die between starting a process and noting it. The births tell the next one which processes there really were, so
that no launch is done twice. A line is one short write to a file opened for appending, so lines of several workers never mix.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import NamedTuple


class Birth(NamedTuple):
    """A process that started: as which instance, in which of its epochs, and by which effect key."""

    instance: str
    epoch: int
    effect_key: str
    pid: int


def write_birth(path: Path, birth: Birth) -> None:
    """Append a birth.

    Raises:
        OSError: the file cannot be written.
    """
    # The newline before keeps it apart from a line that was torn.
    line = b"\n" + json.dumps(birth._asdict()).encode() + b"\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def read_births(path: Path) -> list[Birth]:
    """All births, oldest first. A line that was torn by a crash is left out: its writer never got any further."""
    births: list[Birth] = []
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(ValueError, TypeError):
                births.append(Birth(**json.loads(line)))
    return births
