"""A separate mesh of real processes, with its own directory and free ports, that leaves nothing in any case."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anchorwatch.core.errors import AnchorWatchError, Unavailable
from anchorwatch.mesh import control
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.lock import lock_holder
from anchorwatch.mesh.state import MeshFile, read_mesh
from anchorwatch.settings import PREFIX

START_S_MAX = 60.0
END_S_MAX = 30.0
LEFTOVERS_S_MAX = 5.0
POLL_S = 0.05
# `anchorwatch`, ended by the kernel when this process ends, so that nothing is left.
_PROGRAM = """
import sys
from anchorwatch.mesh.process import end_with_parent
end_with_parent(int(sys.argv.pop(1)))
from anchorwatch.cli.main import main
sys.exit(main())
"""


class StageFailed(AnchorWatchError):
    """The mesh did not start."""

    code = "stage_failed"


@dataclass
class Stage:
    """One mesh. ``settings``: in the form of the environment; they replace those of this process."""

    root: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="anchorwatch-demo-")))
    settings: Mapping[str, str] = field(default_factory=dict)
    _front: subprocess.Popen[bytes] | None = None
    _sessions: list[int] = field(default_factory=list)

    @property
    def data(self) -> DataDir:
        return DataDir.at(self.root / "data")

    @property
    def calls(self) -> Path:
        """The record of tool calls, outside the journal."""
        return self.root / "calls.jsonl"

    @property
    def mesh(self) -> MeshFile:
        """The contents of mesh.json.

        Raises:
            Unavailable: the mesh is not up.
        """
        mesh = read_mesh(self.data)
        if mesh is None:
            raise Unavailable(f"the mesh on {self.data.root} is not up")
        return mesh

    def rows(self) -> list[dict[str, Any]]:
        """The processes as ``anchorwatch status`` lists them."""
        rows: list[dict[str, Any]] = control.ask(self.data, {"verb": "status"})["processes"]
        return rows

    def up(self, *arguments: str) -> None:
        """Run ``anchorwatch up`` in a new process session, and wait until the mesh is ready.

        Raises:
            StageFailed: it did not start; the message has the end of its output.
        """
        command = [sys.executable, "-P", "-c", _PROGRAM, str(os.getpid()), "up"]
        command += ["--data-dir", str(self.data.root), "--port", "0", "--nats-port", "0", *arguments]
        with (self.root / "up.log").open("ab") as log:
            # Ctrl-C in the terminal must reach this process only, which stops the mesh in order.
            self._front = subprocess.Popen(  # noqa: S603 - our own program
                command,
                env=self._environment(),
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._sessions.append(self._front.pid)
        deadline = time.monotonic() + START_S_MAX
        while not self._is_up():
            if self._front.poll() is not None or time.monotonic() > deadline:
                output = (self.root / "up.log").read_text(errors="replace").strip()
                raise StageFailed(f"the mesh did not start: {output[-500:] or 'no output'}")
            time.sleep(POLL_S)

    def _is_up(self) -> bool:
        """Whether the running supervisor wrote mesh.json: a crashed one leaves its file."""
        holder, mesh = lock_holder(self.data), read_mesh(self.data)
        return holder is not None and mesh is not None and mesh.pid == holder.pid

    def kill_everything(self) -> list[int]:
        """Kill every process of the mesh with signal 9, and wait for their end; returns their pids."""
        pids = self.processes()
        _kill(pids)
        self._leftovers()
        if self._front is not None:
            self._front.wait()
            self._front = None
        return pids

    def end(self) -> list[int]:
        """Stop the mesh, and kill what is left; returns the pids of processes that outlived the supervisor."""
        front = self._front
        if front is not None and front.poll() is None:
            front.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                front.wait(END_S_MAX)
        left = self._leftovers()
        _kill(left)
        if front is not None:
            front.wait()
            self._front = None
        return left

    def remove(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self.root, ignore_errors=True)

    def processes(self) -> list[int]:
        """Every running process of the mesh, with any parent. Empty on a system without /proc."""
        return sorted(pid for session in self._sessions for pid in of_session(session))

    def _leftovers(self) -> list[int]:
        """The processes that still run after `LEFTOVERS_S_MAX`."""
        deadline = time.monotonic() + LEFTOVERS_S_MAX
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return left

    def _environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        return {**own, **self.settings}


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def of_session(session: int) -> list[int]:
    """The pids of a session's processes, without zombies."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name in parentheses may have any characters: the fields follow the last parenthesis.
            state, _, _, of = stat.read_text(errors="replace").rpartition(")")[2].split()[:4]
            if int(of) == session and state not in ("Z", "X"):
                found.append(int(stat.parent.name))
    return found
