"""Births: each worker records its own start, as its first act.

The yard may die between starting a process and recording it. Births tell the next yard which processes really started, so
that no launch happens twice (INV-205). A line is one short write to a file opened for appending, so lines never mix.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import NamedTuple


class Birth(NamedTuple):
    """A started process: its instance, epoch and effect key."""

    instance: str
    epoch: int
    effect_key: str
    pid: int


def write_birth(path: Path, birth: Birth) -> None:
    """Append a birth.

    Raises:
        OSError: the file cannot be written.
    """
    # The newline first separates it from a torn line.
    line = b"\n" + json.dumps(birth._asdict()).encode() + b"\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def read_births(path: Path) -> list[Birth]:
    """All births, oldest first. A torn line is skipped: its writer did nothing more."""
    births: list[Birth] = []
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(ValueError, TypeError):
                births.append(Birth(**json.loads(line)))
    return births
