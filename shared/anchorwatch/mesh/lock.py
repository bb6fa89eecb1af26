"""One mesh for each data directory: locks on the directories themselves, which the kernel releases when their holder ends.

A lock is on the inode, so it covers every path: a symbolic link, a second mount, a new name. It does not depend on any file
in the directory; ``lock`` only records where the holder listens. A path may lead to another directory while the lock is
held; the holder must then stop using it: `DataLock.lost_reason`.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from anchorwatch.core.errors import Refused
from anchorwatch.mesh.files import PRIVATE_DIR, DataDir, write_private_json
from anchorwatch.mesh.state import read_mesh

TRIES = 10
TRY_S = 0.02
STORE_TRIES = 250
"""5 s: where the kernel does not end a server with its supervisor, the server needs a moment to end."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds the lock, and where it listens for control requests."""

    pid: int
    control: str


@dataclass(frozen=True, slots=True)
class DataLock:
    """The locks on a data directory and on the store in it, held until this process ends."""

    data: DataDir
    root_fd: int
    store_fd: int
    """The NATS server inherits it: the store stays locked while any process uses it."""

    def lost_reason(self) -> str:
        """Why the lock no longer protects a path; empty if both paths lead to the locked directories."""
        for path, fd in ((self.data.root, self.root_fd), (self.data.nats_store, self.store_fd)):
            if not _leads_to(path, fd):
                return f"{path} was moved, replaced or removed while the mesh ran"
        return ""

    def release(self) -> None:
        """Release both locks before the process ends."""
        os.close(self.root_fd)
        os.close(self.store_fd)


def acquire_lock(data: DataDir, holder: Holder) -> DataLock:
    """Lock a data directory until this process ends.

    Raises:
        Refused: another mesh runs on this data, or the directory cannot be locked.
    """
    root_fd = _lock(data.root, TRIES)
    if root_fd is None:
        raise _already_running(data)
    store_fd = _lock(data.nats_store, STORE_TRIES)
    if store_fd is None:
        os.close(root_fd)
        raise Refused(
            f"another NATS server uses the store {data.nats_store}",
            hint="stop the mesh or the server that uses it, or choose another --data-dir",
        )
    lock = DataLock(data, root_fd, store_fd)
    if reason := lock.lost_reason():
        lock.release()
        raise Refused(reason, hint="start again")
    write_private_json(data.lock, {"pid": holder.pid, "control": holder.control})
    return lock


def refuse_if_held(data: DataDir) -> None:
    """Check early that no mesh runs on this data; `acquire_lock` decides.

    Raises:
        Refused: a mesh runs on this data.
    """
    if lock_holder(data) is not None:
        raise _already_running(data)


def lock_holder(data: DataDir) -> Holder | None:
    """The holder of the lock; None if no mesh runs on this data."""
    try:
        fd = _open(data.root)
    except OSError:
        return None
    try:
        # A shared lock: two processes that check at once must not mistake each other for a mesh.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        try:
            value = json.loads(data.lock.read_text(encoding="utf-8"))
            return Holder(int(value["pid"]), str(value["control"]))
        except (OSError, ValueError, KeyError, TypeError):
            # The mesh is just starting, or its file was moved away.
            return Holder(0, str(data.control))
    except OSError:
        return None
    else:
        return None
    finally:
        os.close(fd)


def _lock(directory: Path, tries: int) -> int | None:
    """A descriptor that holds the lock; None if another process holds it.

    Tried several times: a check holds the lock for an instant too.
    """
    try:
        directory.mkdir(mode=PRIVATE_DIR, exist_ok=True)
        fd = _open(directory)
        for _ in range(tries):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(TRY_S)
            else:
                return fd
    except OSError as error:
        raise Refused(
            f"{directory} cannot be locked: {error.strerror}",
            hint="choose a --data-dir on a local file system",
        ) from None
    os.close(fd)
    return None


def _open(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _leads_to(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except OSError:
        return False


def _already_running(data: DataDir) -> Refused:
    holder, mesh = lock_holder(data), read_mesh(data)
    where = f" at {mesh.api_url}" if mesh is not None else ""
    pid = f" (pid {holder.pid})" if holder is not None and holder.pid else ""
    return Refused(
        f"a mesh is already running on {data.root}{where}{pid}",
        hint="`anchorwatch status`, or `anchorwatch down` to stop it",
    )
