"""Starts, signals and reaps worker processes. None outlives the yard."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from anchorwatch_fleet.yard.births import Birth, read_births

LOG_TAIL_BYTES_MAX = 64 * 1024
MODULE = "anchorwatch_fleet.worker"

OnExit = Callable[[str, int, int], None]
"""Takes (instance, epoch, return code; minus the signal's number when a signal ended it)."""


class Processes(Protocol):
    """The process management that the yard needs."""

    async def start(self, instance: str, epoch: int, effect_key: str, on_exit: OnExit) -> int:
        """Start a worker process; its pid.

        Raises:
            OSError: the process could not be started.
        """
        ...

    def signal(self, instance: str, number: signal.Signals) -> bool:
        """Send a signal; False: no process."""
        ...

    async def ended(self, instance: str, timeout_s: float) -> bool:
        """Wait until the instance has no process; False: it still has one after ``timeout_s``."""
        ...

    def births(self) -> list[Birth]:
        """Every recorded birth of a worker process."""
        ...

    def log_lines(self, instance: str, lines_max: int) -> list[str]:
        """The last lines of the instance's log."""
        ...


@dataclass
class WorkerProcesses:
    """Real processes on this machine, with their logs and births in ``directory``.

    ``environment``: how a worker reaches the bus. A worker holds the reading end of a pipe whose other end only the yard holds;
    it closes when the yard ends.
    """

    directory: Path
    environment: Mapping[str, str]
    _running: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    _watchers: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.directory / "logs").mkdir(parents=True, exist_ok=True)

    @property
    def _births(self) -> Path:
        return self.directory / "births.jsonl"

    async def start(self, instance: str, epoch: int, effect_key: str, on_exit: OnExit) -> int:
        with self._log(instance).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                MODULE,
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={
                    **_without_secrets(os.environ),
                    **self.environment,
                    "ANCHORWATCH_FLEET_INSTANCE": instance,
                    "ANCHORWATCH_FLEET_EPOCH": str(epoch),
                    "ANCHORWATCH_FLEET_EFFECT_KEY": effect_key,
                    "ANCHORWATCH_FLEET_BIRTHS": str(self._births.resolve()),
                    "ANCHORWATCH_FLEET_PARENT": str(os.getpid()),
                },
            )
        self._running[instance] = process
        self._watchers[instance] = asyncio.create_task(self._watch(process, instance, epoch, on_exit))
        return process.pid

    async def _watch(
        self, process: asyncio.subprocess.Process, instance: str, epoch: int, on_exit: OnExit
    ) -> None:
        code = await process.wait()
        if self._running.get(instance) is process:
            del self._running[instance]
        on_exit(instance, epoch, code)

    def signal(self, instance: str, number: signal.Signals) -> bool:
        process = self._running.get(instance)
        if process is None or process.returncode is not None:
            return False
        process.send_signal(number)
        return True

    async def ended(self, instance: str, timeout_s: float) -> bool:
        watcher = self._watchers.get(instance)
        if watcher is None:
            return True
        done, _ = await asyncio.wait({watcher}, timeout=timeout_s)
        return bool(done)

    def births(self) -> list[Birth]:
        return read_births(self._births)

    def log_lines(self, instance: str, lines_max: int) -> list[str]:
        try:
            with self._log(instance).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES_MAX))
                text = log.read().decode(errors="replace")
        except FileNotFoundError:
            return []
        return text.splitlines()[-lines_max:]

    def _log(self, instance: str) -> Path:
        return self.directory / "logs" / f"{instance}.log"


def _without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """A worker gets the machine's environment, and only the settings of the mesh that are passed by name."""
    return {name: value for name, value in environment.items() if not name.startswith("ANCHORWATCH_")}
