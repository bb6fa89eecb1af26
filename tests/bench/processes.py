"""Processes of a bench: started, known to be ready, killed hard, and asked what CPU they used."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
READY_S_MAX = 120.0
STOP_S_MAX = 10.0
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """CPU seconds, in user and in kernel mode, that a process has used."""
    # The second field is the program's name in parentheses, and may hold anything.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


@dataclass
class Process:
    """A Python module of this tree, run by itself. It says that it is ready on the pipe ``ANCHORWATCH_READY_FD``."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    directory: Path
    python: str = sys.executable
    popen: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    ready_s: float = 0.0
    used_before_s: float = 0.0

    @property
    def log(self) -> Path:
        return self.directory / f"{self.name}.log"

    async def start(self) -> None:
        """Start it, and wait until it is ready.

        Raises:
            RuntimeError: it ended, or was not ready in time; with the end of its log.
        """
        readable = self._spawn()
        try:
            async with asyncio.timeout(READY_S_MAX):
                report = await asyncio.to_thread(os.read, readable, 64)
        finally:
            os.close(readable)
        self.ready_s = time.monotonic()
        if not report:
            raise RuntimeError(f"{self.name} did not start:\n{self.log.read_text()[-3000:]}")

    def _spawn(self) -> int:
        readable, writable = os.pipe()
        environment = {**os.environ, **self.environment, "ANCHORWATCH_READY_FD": str(writable)}
        environment["PYTHONPATH"] = str(ROOT)
        self.started_s = time.monotonic()
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                [self.python, "-m", *self.arguments],
                env=environment,
                cwd=self.directory,
                stdout=log,
                stderr=log,
                pass_fds=(writable,),
            )
        os.close(writable)
        return readable

    @property
    def start_s(self) -> float:
        """How long the last start took until it was ready."""
        return self.ready_s - self.started_s

    def cpu_s(self) -> float:
        """CPU seconds of all its lives."""
        alive = self.popen is not None and self.popen.poll() is None
        return self.used_before_s + (cpu_s(self.popen.pid) if alive and self.popen else 0.0)

    def kill9(self) -> None:
        if self.popen is None:
            return
        if self.popen.poll() is None:
            self.used_before_s = self.cpu_s()
            self.popen.kill()
        self.popen.wait(STOP_S_MAX)
        self.popen = None

    def stop(self) -> None:
        """End it in an orderly way, or hard when it takes its time."""
        if self.popen is not None and self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(STOP_S_MAX)
        self.kill9()


def announce_ready() -> None:
    """Say that this process is ready, to whoever started it as a `Process`."""
    descriptor = int(os.environ.pop("ANCHORWATCH_READY_FD"))
    os.write(descriptor, b"READY=1\n")
    os.close(descriptor)
