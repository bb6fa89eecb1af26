"""One mesh for each data directory: a lock that the kernel lets go when its holder ends, however it ends."""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import dataclass

from anchorwatch.core.errors import Refused
from anchorwatch.mesh.files import PRIVATE_FILE, DataDir
from anchorwatch.mesh.state import read_mesh

TRIES = 10
TRY_S = 0.02


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the lock, by its own word, and where it listens for control requests."""

    pid: int
    control: str


def take_lock(data: DataDir, holder: Holder) -> None:
    """Take the lock on a data directory, until this process ends.

    Raises:
        Refused: another mesh runs on this data, and where.
    """
    fd = os.open(data.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    if not _locked(fd):
        os.close(fd)
        raise _refusal(data)
    # Written over in place: the lock is on this very file, so it cannot be replaced.
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps({"pid": holder.pid, "control": holder.control}).encode(), 0)


def refuse_if_held(data: DataDir) -> None:
    """Look before anything is begun; ``take_lock`` decides.

    Raises:
        Refused: a mesh runs on this data, and where.
    """
    if held_by(data) is not None:
        raise _refusal(data)


def _locked(fd: int) -> bool:
    """Whether the lock could be taken; tried for a moment, since somebody who merely looks holds it for an instant."""
    for _ in range(TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(TRY_S)
        else:
            return True
    return False


def held_by(data: DataDir) -> Holder | None:
    """Who holds the lock now; None when no mesh runs on this data."""
    try:
        fd = os.open(data.lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # A shared try only: two who merely look must not think each other a mesh.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        try:
            value = json.loads(os.pread(fd, 4096, 0))
            return Holder(int(value["pid"]), str(value["control"]))
        except (ValueError, KeyError, TypeError):
            # It is just starting.
            return Holder(0, str(data.control))
    else:
        return None
    finally:
        os.close(fd)


def _refusal(data: DataDir) -> Refused:
    holder, mesh = held_by(data), read_mesh(data)
    where = f" at {mesh.api_url}" if mesh is not None else ""
    pid = f" (pid {holder.pid})" if holder is not None and holder.pid else ""
    return Refused(
        f"a mesh is already running on {data.root}{where}{pid}",
        hint="`anchorwatch status`, or `anchorwatch down` to stop it",
    )
