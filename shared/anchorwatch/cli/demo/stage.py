"""A mesh of its own: a temporary data directory, free ports, real processes; and, however it ends, nothing left of it."""

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
from anchorwatch.mesh.credentials import SERVICES, YARD
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.process import end_with_parent
from anchorwatch.mesh.state import MeshFile, read_mesh
from anchorwatch.settings import PREFIX

START_S_MAX = 60.0
END_S_MAX = 30.0
GONE_S_MAX = 5.0
POLL_S = 0.05


class StageFailed(AnchorWatchError):
    """The mesh did not start, or does not go on."""

    code = "stage_failed"


@dataclass
class Stage:
    """One mesh. ``settings``: in the form of the environment, in place of whatever this process was given."""

    root: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="anchorwatch-demo-")))
    settings: Mapping[str, str] = field(default_factory=dict)
    _front: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> DataDir:
        return DataDir.at(self.root / "data")

    @property
    def mesh(self) -> MeshFile:
        """The mesh as mesh.json tells.

        Raises:
            Unavailable: it is not up.
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
        """Start ``anchorwatch up`` without an agent, and wait until it is ready.

        Raises:
            StageFailed: it is not; its last words are in the message.
        """
        # With the yard, and without what a first start would add: the agent, its session, a first turn.
        only = [word for name in (*SERVICES, YARD) for word in ("--only", name)]
        command = [
            sys.executable,
            "-P",
            "-m",
            "anchorwatch.cli.main",
            "up",
            "--data-dir",
            str(self.data.root),
        ]
        command += ["--port", "0", "--nats-port", "0", "--no-fleet", *only, *arguments]
        parent = os.getpid()
        with (self.root / "up.log").open("ab") as log:
            # A session of its own: Ctrl-C in the terminal reaches the demo alone, which ends its mesh in order.
            self._front = subprocess.Popen(  # noqa: S603 - our own program
                command,
                env=self._environment(),
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: end_with_parent(parent),  # noqa: PLW1509 - as the mesh itself does
            )
        deadline = time.monotonic() + START_S_MAX
        while read_mesh(self.data) is None:
            if self._front.poll() is not None or time.monotonic() > deadline:
                said = (self.root / "up.log").read_text(errors="replace").strip()
                raise StageFailed(f"the mesh did not start: {said[-500:] or 'it said nothing'}")
            time.sleep(POLL_S)

    def end(self) -> list[int]:
        """End the mesh, and kill what does not end; returns the pids of what was left of it after its own end."""
        front = self._front
        if front is None:
            return []
        if front.poll() is None:
            front.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                front.wait(END_S_MAX)
        deadline = time.monotonic() + GONE_S_MAX
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if front.poll() is None:
            front.kill()
        front.wait()
        self._front = None
        return left

    def remove(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self.root, ignore_errors=True)

    def processes(self) -> list[int]:
        """Every process of the mesh that runs: those in the session of the one that was started. Empty where /proc is none."""
        if self._front is None:
            return []
        return sorted(_of_session(self._front.pid))

    def _environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        return {**own, **self.settings}


def _of_session(session: int) -> list[int]:
    """The pids of a session's processes; one that ended and was not waited for is none."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name in parentheses may hold anything: what counts stands after the last one.
            state, _, _, of = stat.read_text(errors="replace").rpartition(")")[2].split()[:4]
            if int(of) == session and state not in ("Z", "X"):
                found.append(int(stat.parent.name))
    return found
