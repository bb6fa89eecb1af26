"""The process that a person starts: it makes the supervisor, prints what it tells, and passes on the wish to stop.

A terminal sends Ctrl-C to everything in the foreground's process group. The supervisor and its children therefore form a
group of their own, so that they end in order, and the NATS server last; this process stays in the foreground. When it is killed,
the kernel ends the supervisor, and with it everything else.
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

CRASHED = 70
Tell = Callable[[dict[str, Any]], None]
Supervise = Callable[[Tell], int]


class Front:
    """A supervisor in a process of its own, seen from the one that started it."""

    def __init__(self, supervise: Supervise, log: Path, *, detach: bool) -> None:
        self.stopping = False
        self._detach = detach
        self._pid = 0
        self._code: int | None = None
        read_end, write_end = os.pipe()
        parent = os.getpid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._pass_on)
        self._pid = os.fork()
        if self._pid == 0:
            os.close(read_end)
            _become_supervisor(supervise, log, write_end, parent, detach=detach)
        os.close(write_end)
        if self.stopping:
            os.kill(self._pid, signal.SIGTERM)
        self._events = os.fdopen(read_end, encoding="utf-8")

    def events(self) -> Iterator[dict[str, Any]]:
        """What the supervisor tells, until it ends."""
        with self._events:
            for line in self._events:
                yield json.loads(line)

    def wait(self) -> int:
        """Wait for the supervisor's end; returns its exit code, negative for a signal."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._code

    def _pass_on(self, _number: int, _frame: FrameType | None) -> None:
        if not self.stopping:
            with contextlib.suppress(OSError):
                os.write(2, b"\nstopping (once more to hurry)\n")
        self.stopping = True
        if self._pid and self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGTERM)


def _become_supervisor(supervise: Supervise, log: Path, write_end: int, parent: int, *, detach: bool) -> None:
    """In the new process. Never returns."""
    code = CRASHED
    tell = _teller(write_end)
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if detach:
            os.setsid()
        else:
            os.setpgid(0, 0)
            end_with_parent(parent)
        _redirect(log)
        code = supervise(tell)
    except AnchorWatchError as error:
        tell({"event": "failed", "message": error.message, "hint": error.hint})
        code = error.exit_code
    except BaseException as error:  # noqa: BLE001 - whatever it is, the person must hear of it
        traceback.print_exc()
        tell({"event": "failed", "message": f"the supervisor crashed: {error!r}", "hint": f"see {log}"})
    finally:
        os._exit(code)


def _teller(write_end: int) -> Tell:
    def tell(event: dict[str, Any]) -> None:
        # With --detach nobody listens any more once it is ready.
        with contextlib.suppress(OSError):
            os.write(write_end, json.dumps(event).encode() + b"\n")

    return tell


def _redirect(log: Path) -> None:
    """From here on nothing reads or writes the terminal: it may go away."""
    rotate(log)
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_FILE)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(null)
    os.close(out)
