"""One process that is restarted whenever it ends: at once the first time, then with exponential backoff."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog

from anchorwatch.core.times import backoff_s
from anchorwatch.mesh.files import last_line
from anchorwatch.mesh.process import Command, Processes, Running

BACKOFF_FIRST_S = 0.2
BACKOFF_S_MAX = 10.0
HEALTHY_S = 30.0
"""A run of this length resets the backoff."""
STOP_S_MAX = 8.0
PROBE_INTERVAL_S = 0.02

Probe = Callable[[], Awaitable[bool]]


@dataclass(slots=True)
class Backoff:
    """The delay of the next start: 0, 0.2, 0.4, … 10 s; 0 again after a healthy run.

    ``spread`` as in `backoff_s`: processes that ended together do not start together.
    """

    spread: Callable[[], float] = lambda: 0.0
    failures: int = 0

    def after(self, ran_s: float) -> float:
        """The delay in seconds after a run of ``ran_s`` seconds."""
        if ran_s >= HEALTHY_S:
            self.failures = 0
        self.failures += 1
        if self.failures == 1:
            return 0.0
        return backoff_s(self.failures - 1, BACKOFF_FIRST_S, BACKOFF_S_MAX, self.spread())


@dataclass(slots=True)
class ManagedProcess:
    """One instance, such as ``executor-1``, across its restarts.

    ``on_change`` is called when the pid or the readiness changes.
    ``ended`` is set at each end of the process, and when the instance is stopped for good.
    ``probe`` returns whether a program is ready that does not announce its readiness.
    ``before_start`` is called before each start and prevents it by an OSError.
    ``on_ready`` is awaited each time the process is ready, before its readiness is visible.
    """

    service: str
    instance: str
    command: Command
    on_change: Callable[[ManagedProcess], None]
    log: structlog.stdlib.BoundLogger
    probe: Probe | None = None
    before_start: Callable[[], object] = lambda: None
    on_ready: Callable[[], Awaitable[None]] | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    restarts: int = 0
    since: datetime | None = None
    last_exit: int | None = None
    _backoff: Backoff = field(default_factory=lambda: Backoff(random.random))
    _running: Running | None = None
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self._running.pid if self._running is not None else None

    @property
    def stopping(self) -> bool:
        """Whether the instance is stopped for good."""
        return self._stopping.is_set()

    def start(self, processes: Processes) -> None:
        """Start the process, and restart it whenever it ends."""
        self._task = asyncio.create_task(self._run(processes), name=f"run {self.instance}")

    async def stop(self) -> None:
        """End the process for good: SIGTERM, then SIGKILL after `STOP_S_MAX`."""
        self._stopping.set()
        running = self._running
        if running is not None:
            running.signal(signal.SIGTERM)
            # A process that SIGSTOP has stopped handles SIGTERM only after SIGCONT.
            running.signal(signal.SIGCONT)
            await asyncio.wait({running.ended}, timeout=STOP_S_MAX)
        self.kill()
        if self._task is not None:
            await self._task
        self.ended.set()

    def restart(self, reason: str) -> None:
        """End the process with SIGTERM; it then starts again."""
        if self._running is not None and not self._running.ended.done():
            self.log.warning(
                "process.restarting", instance=self.instance, pid=self._running.pid, reason=reason
            )
            self._running.signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process now, for good."""
        self._stopping.set()
        if self._running is not None and not self._running.ended.done():
            self.log.warning("process.killed", instance=self.instance, pid=self._running.pid)
            self._running.signal(signal.SIGKILL)

    async def _run(self, processes: Processes) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            started_at = loop.time()
            code = await self._run_once(processes)
            if self._stopping.is_set():
                return
            wait_s = self._backoff.after(loop.time() - started_at)
            self.log.error(
                "process.ended",
                instance=self.instance,
                exit_code=code,
                restart_in_s=wait_s,
                last_line=last_line(self.command.log),
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stopping.wait()
            self.restarts += 1

    async def _run_once(self, processes: Processes) -> int | None:
        try:
            self.before_start()
            running = processes.start(self.command)
        except OSError as error:
            self.log.error("process.start_failed", instance=self.instance, reason=str(error))  # noqa: TRY400 - the text suffices
            return None
        self._running, self.since = running, datetime.now(UTC)
        self.log.info("process.started", instance=self.instance, pid=running.pid)
        self.on_change(self)
        watch = asyncio.create_task(self._watch_ready(running), name=f"ready {self.instance}")
        try:
            self.last_exit = await running.ended
        finally:
            watch.cancel()
            self._running = None
            self.ready.clear()
            self.ended.set()
        self.on_change(self)
        return self.last_exit

    async def _watch_ready(self, running: Running) -> None:
        if self.probe is None:
            await running.ready.wait()
        else:
            while not await self.probe():  # noqa: ASYNC110 - the program sends no notification
                await asyncio.sleep(PROBE_INTERVAL_S)
        if self.on_ready is not None:
            await self.on_ready()
        self.log.info("process.ready", instance=self.instance, pid=running.pid)
        self.ready.set()
        self.on_change(self)
