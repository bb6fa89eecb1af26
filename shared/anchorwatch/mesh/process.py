"""Child processes that cannot outlive their parent, and the reaper that reports their ends."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from anchorwatch.mesh.files import PRIVATE_FILE, rotate
from anchorwatch.service.readiness import READY_FD

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform == "linux"
# Loaded before any fork: between fork and exec a child must do as little as possible.
_libc = ctypes.CDLL(None, use_errno=True) if _LINUX else None
ORPHANED = 71


def end_with_parent(parent: int) -> None:
    """Make the kernel kill this process when ``parent`` ends for any reason.

    A new child calls it first. It has no effect on systems other than Linux.
    """
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # The parent may have ended before the call.
        if os.getppid() != parent:
            os._exit(ORPHANED)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that this process can end them when it ends."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Command:
    """A program to start. ``log`` receives stdout and stderr; ``fds`` are the descriptors that it inherits."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    cwd: Path | None = None
    fds: tuple[int, ...] = ()


class Running:
    """A started process. The result of ``ended`` is its exit code, negative for a signal."""

    def __init__(self, process: subprocess.Popen[bytes], ready_fd: int) -> None:
        self.process = process
        self.ready = asyncio.Event()
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._ready_fd = ready_fd
        asyncio.get_running_loop().add_reader(ready_fd, self._on_readable)

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        if not self.ended.done():
            # Not `Popen.send_signal`: it polls first, and so takes the exit status from the reaper.
            # The pid is still valid, since only the reaper waits for the process.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def finish(self, code: int) -> None:
        """Record the end; the reaper calls this once."""
        self._close_pipe()
        if not self.ended.done():
            self.ended.set_result(code)

    def _on_readable(self) -> None:
        if os.read(self._ready_fd, 64):
            self.ready.set()
        self._close_pipe()

    def _close_pipe(self) -> None:
        if self._ready_fd >= 0:
            asyncio.get_running_loop().remove_reader(self._ready_fd)
            os.close(self._ready_fd)
            self._ready_fd = -1


class Processes:
    """All children of this process, which must be single-threaded and start each of its children here."""

    def __init__(self) -> None:
        self._running: dict[int, Running] = {}

    def listen(self) -> None:
        """Reap children on SIGCHLD."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.reap)

    def start(self, command: Command) -> Running:
        """Start a process in this process's group.

        Raises:
            OSError: the program does not exist, or the system cannot start another process.
        """
        rotate(command.log)
        read_end, write_end = os.pipe()
        try:
            log = os.open(command.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
            try:
                process = subprocess.Popen(  # noqa: S603 - our own programs
                    command.arguments,
                    env={**command.environment, READY_FD: str(write_end)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=command.cwd,
                    pass_fds=(write_end, *command.fds),
                    preexec_fn=_before_exec(os.getpid()),  # noqa: PLW1509 - this process has one thread
                )
            finally:
                os.close(log)
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        running = Running(process, read_end)
        self._running[process.pid] = running
        return running

    def reap(self) -> None:
        """Handle each child that ended, including adopted ones."""
        for pid, running in tuple(self._running.items()):
            code = running.process.poll()
            if code is not None:
                del self._running[pid]
                running.finish(code)
        if _LINUX:
            self._reap_adopted()

    def _reap_adopted(self) -> None:
        """Peek first, and stop at a child of `_running` that has just ended: `reap` handles it at its SIGCHLD."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if ended.si_pid in self._running:
                    return
                os.waitpid(ended.si_pid, 0)


def _before_exec(parent: int) -> Callable[[], None]:
    return lambda: end_with_parent(parent)


def children_of(parent: int) -> list[int]:
    """The pids of the children of ``parent``, including adopted ones; empty on systems without ``/proc``."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name in parentheses may contain any character: the fields follow the last parenthesis.
            state, ppid = stat.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if int(ppid) == parent and state != "Z":
                pids.append(int(stat.parent.name))
    return pids
