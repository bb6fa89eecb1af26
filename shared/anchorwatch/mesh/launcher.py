"""The foreground process of `anchorwatch up`: it forks the supervisor, reads its events, and forwards signals to it.

A terminal sends Ctrl-C to every process in the foreground's process group. The supervisor and its children form another
group, so that they end in order, with the NATS server last. If the foreground process is killed, the kernel kills the
supervisor, and then each of its children.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.mesh.files import PRIVATE_FILE, rotate
from anchorwatch.mesh.process import end_with_parent
from anchorwatch.mesh.state import Report

CRASHED = 70
Supervise = Callable[[Report], int]


class Launcher:
    """Runs ``supervise`` in a forked process."""

    def __init__(self, supervise: Supervise, log: Path, *, detach: bool) -> None:
        self.stopping = False
        self._detach = detach
        self._pid = 0
        self._code: int | None = None
        read_end, write_end = os.pipe()
        parent = os.getpid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._forward)
        self._pid = os.fork()
        if self._pid == 0:
            os.close(read_end)
            _become_supervisor(supervise, log, write_end, parent, detach=detach)
        os.close(write_end)
        if self.stopping:
            os.kill(self._pid, signal.SIGTERM)
        self._events = os.fdopen(read_end, encoding="utf-8")

    def events(self) -> Iterator[dict[str, Any]]:
        """The events of the supervisor, until it ends."""
        with self._events:
            for line in self._events:
                yield json.loads(line)

    def wait(self) -> int:
        """Wait until the supervisor ends; returns its exit code, negative for a signal."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._code

    def _forward(self, _number: int, _frame: FrameType | None) -> None:
        if not self.stopping:
            with contextlib.suppress(OSError):
                os.write(2, b"\nstopping (press Ctrl-C again to kill)\n")
        self.stopping = True
        if self._pid and self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGTERM)


def _become_supervisor(supervise: Supervise, log: Path, write_end: int, parent: int, *, detach: bool) -> None:
    """Run the supervisor in the forked process, and exit."""
    code = CRASHED
    report = _reporter(write_end)
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if detach:
            os.setsid()
        else:
            os.setpgid(0, 0)
            end_with_parent(parent)
        _redirect(log)
        code = supervise(report)
    except AnchorWatchError as error:
        report({"event": "failed", "message": error.message, "hint": error.hint})
        code = error.exit_code
    except BaseException as error:  # noqa: BLE001 - each error is reported to the person
        traceback.print_exc()
        report({"event": "failed", "message": f"the supervisor crashed: {error!r}", "hint": f"see {log}"})
    finally:
        os._exit(code)


def _reporter(write_end: int) -> Report:
    def report(event: dict[str, Any]) -> None:
        # With --detach, no process reads the pipe once the mesh is ready.
        with contextlib.suppress(OSError):
            os.write(write_end, json.dumps(event).encode() + b"\n")

    return report


def _redirect(log: Path) -> None:
    """Detach the standard streams from the terminal: it may close at any time."""
    rotate(log)
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_FILE)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(null)
    os.close(out)
