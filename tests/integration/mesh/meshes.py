"""A small mesh under test: the real front, supervisor and NATS server; helper services."""

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
from anchorwatch.mesh.lock import held_by
from anchorwatch.mesh.state import MeshFile, read_mesh

from tests.support.waiting import is_running, until

PROGRAM = Path(__file__).with_name("small_mesh.py")


@dataclass
class SmallMesh:
    """One data directory, and the front that was started on it, if any."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    front: subprocess.Popen[str] | None = None

    @property
    def data(self) -> DataDir:
        return DataDir.at(self.root)

    @property
    def mesh(self) -> MeshFile:
        found = read_mesh(self.data)
        assert found is not None
        return found

    @property
    def pids(self) -> list[int]:
        """Every process of the mesh, the supervisor included."""
        mesh = self.mesh
        return [mesh.pid, *(pid for pids in mesh.pids.values() for pid in pids)]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Start it and wait for the front's end."""
        return subprocess.run(
            self._command(arguments), capture_output=True, text=True, check=False, timeout=120, env=self._env
        )

    def up(self, *arguments: str) -> None:
        """Start it in the foreground, as a terminal does, and wait until it is ready."""
        self.front = subprocess.Popen(
            self._command(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self._env,
            start_new_session=True,
        )  # fmt: skip
        assert self.front.stdout is not None
        said = []
        for line in self.front.stdout:
            said.append(line)
            if "stop " in line:
                return
        raise AssertionError("".join(said))

    def end(self) -> None:
        """Whatever is left of it."""
        if self.front is not None:
            if self.front.poll() is None:
                self.front.kill()
            self.front.wait(10)
            if self.front.stdout is not None:
                self.front.stdout.close()
        while (holder := held_by(self.data)) is not None:
            if holder.pid:
                os.kill(holder.pid, signal.SIGKILL)
            until(lambda: held_by(self.data) != holder)

    def pid(self, service: str) -> int:
        return self.mesh.pids[service][0]

    def row(self, instance: str) -> dict[str, Any]:
        """A process, as ``status`` shows it."""
        rows = control.ask(self.data, {"verb": "status"})["processes"]
        return next(row for row in rows if row["instance"] == instance)

    def order(self, name: str) -> None:
        """Tell a helper service to misbehave."""
        (self.root / "orders").mkdir(parents=True, exist_ok=True)
        (self.root / "orders" / name).touch()

    def ends(self) -> list[str]:
        """Which helper services ended in order, and by which signal."""
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
    """Wait until none of them runs."""
    until(lambda: not any(map(is_running, pids)), within_s, f"processes ended: {pids}")
