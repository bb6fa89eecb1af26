"""A small mesh under test: the real launcher, supervisor and NATS server, with helper services."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anchorwatch.mesh import control
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.lock import lock_holder
from anchorwatch.mesh.state import MeshFile, read_mesh

from tests.support.waiting import is_running, until

PROGRAM = Path(__file__).with_name("small_mesh.py")


@dataclass
class SmallMesh:
    """One data directory, and the launcher that runs on it, if any."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    launcher: subprocess.Popen[str] | None = None

    @property
    def data(self) -> DataDir:
        return DataDir.at(self.root)

    @property
    def mesh(self) -> MeshFile:
        mesh = read_mesh(self.data)
        assert mesh is not None
        return mesh

    @property
    def pids(self) -> list[int]:
        """Every process of the mesh, the supervisor included."""
        mesh = self.mesh
        return [mesh.pid, *(pid for pids in mesh.pids.values() for pid in pids)]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Start the mesh and wait until the launcher ends."""
        return subprocess.run(
            self._command(arguments), capture_output=True, text=True, check=False, timeout=120, env=self._env
        )

    def up(self, *arguments: str) -> None:
        """Start the mesh in the foreground, as a terminal does, and wait until it is ready."""
        self.launcher = subprocess.Popen(
            self._command(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self._env,
            start_new_session=True,
        )  # fmt: skip
        assert self.launcher.stdout is not None
        output = []
        for line in self.launcher.stdout:
            output.append(line)
            if "stop " in line:
                return
        raise AssertionError("".join(output))

    def end(self) -> None:
        """End every process that is left."""
        if self.launcher is not None:
            if self.launcher.poll() is None:
                self.launcher.kill()
            self.launcher.wait(10)
            if self.launcher.stdout is not None:
                self.launcher.stdout.close()
        while (holder := lock_holder(self.data)) is not None:
            if holder.pid:
                os.kill(holder.pid, signal.SIGKILL)
            until(lambda: lock_holder(self.data) != holder)

    def pid(self, service: str) -> int:
        return self.mesh.pids[service][0]

    def row(self, instance: str) -> dict[str, Any]:
        """The row of an instance in ``status``."""
        rows = control.ask(self.data, {"verb": "status"})["processes"]
        return next(row for row in rows if row["instance"] == instance)

    def order(self, name: str) -> None:
        """Make a helper service misbehave."""
        (self.root / "orders").mkdir(parents=True, exist_ok=True)
        (self.root / "orders" / name).touch()

    def ends(self) -> list[str]:
        """The helper services that ended in order, each with its signal."""
        file = self.root / "ends"
        return file.read_text().splitlines() if file.exists() else []

    def secret(self, user: str) -> str:
        return str(json.loads(self.data.credentials.read_text())["users"][user])

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, str(PROGRAM), str(self.root), *arguments]

    @property
    def _env(self) -> dict[str, str]:
        return {**os.environ, **self.environment}


def all_gone(pids: list[int], within_s: float = 30.0) -> None:
    """Wait until none of the processes runs."""
    until(lambda: not any(map(is_running, pids)), within_s, f"processes ended: {pids}")
