"""Real service processes that start quickly: forks of one process that has imported everything.

A service needs about a second of CPU for its imports, and a crash test starts hundreds. So the standard library's fork
server imports once, and each process is a fork of it: `anchorwatch serve` without that second.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import select
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from anchorwatch.mesh.control import SHORT_TMP, SOCKET_PATH_BYTES_MAX
from anchorwatch.mesh.files import PRIVATE_FILE
from anchorwatch.mesh.process import end_with_parent
from anchorwatch.service.readiness import READY_FD

PRELOAD = "anchorwatch.testing.crash_test.preload"
END_S_MAX = 10.0
STDERR = 2
FDS_MAX = 65_536
# The path of its socket below the directory for temporary files.
SERVER_SOCKET = "/pymp-xxxxxxxx/listener-xxxxxxxx"


@dataclass(frozen=True, slots=True)
class StartSpec:
    """A process to start. ``modules``: imported first, such as one that registers a pack."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    modules: tuple[str, ...] = ()


class Child:
    """A started process. Only this object waits for it, so its pid is not reused before `close`."""

    def __init__(self, spec: StartSpec, process: Any, ready: Connection) -> None:  # noqa: ANN401 - a process of the fork server
        self.spec = spec
        self._process = process
        self._ready = ready
        self._is_ready = False

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def ready(self) -> bool:
        """Whether it has reported that it is ready."""
        if not self._is_ready and select.select([self._ready], [], [], 0)[0]:
            self._is_ready = bool(os.read(self._ready.fileno(), 64))
        return self._is_ready and self.exit_code is None

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        code: int | None = self._process.exitcode
        return code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it with signal 9, and wait for its end."""
        self.signal(signal.SIGKILL)
        self._process.join(END_S_MAX)

    def stop(self) -> None:
        """Terminate it, and kill it if it does not end."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        self._process.join(END_S_MAX)
        self.kill()

    def close(self) -> None:
        """Release the resources of an ended process."""
        self._ready.close()
        self._process.close()


class ForkServer:
    """Starts processes. They end with this process, even after a crash."""

    def __init__(self, modules: Sequence[str] = ()) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([PRELOAD, *modules])
        self._modules = tuple(modules)
        with short_tmp():
            forkserver.ensure_running()

    def start(self, arguments: tuple[str, ...], environment: Mapping[str, str], log: Path) -> Child:
        """Start a service (one argument: its name) or a program (its path and arguments)."""
        spec = StartSpec(arguments, environment, log, self._modules)
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=live, args=(spec, theirs), name=arguments[0], daemon=True)
        process.start()
        theirs.close()
        return Child(spec, process, ours)


@contextlib.contextmanager
def short_tmp() -> Iterator[None]:
    """Let the fork server make its socket in a short path: a socket path has a maximum, and TMPDIR may be long."""
    before, at = tempfile.tempdir, tempfile.gettempdir()
    if len(os.fsencode(at + SERVER_SOCKET)) > SOCKET_PATH_BYTES_MAX:
        tempfile.tempdir = SHORT_TMP
    try:
        yield
    finally:
        tempfile.tempdir = before


def live(spec: StartSpec, ready: Connection) -> None:
    """Run a process, within the process itself. Never returns."""
    end_with_parent(os.getppid())
    # The fork server ends when the last process closes its pipe. This process must not hold it open.
    os.closerange(STDERR + 1, ready.fileno())
    os.closerange(ready.fileno() + 1, FDS_MAX)
    # Ctrl-C must reach the foreground process only, which stops the others in order.
    os.setpgid(0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    log = os.open(spec.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_FILE)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()
    os.environ.update(spec.environment)
    if len(spec.arguments) > 1:
        os.execve(spec.arguments[0], spec.arguments, os.environ)  # noqa: S606 - the program that the caller names
    os.environ[READY_FD] = str(ready.fileno())
    for name in spec.modules:
        importlib.import_module(name)
    from anchorwatch.service import runner

    code = runner.main(spec.arguments[0])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
