"""Keeps one process running: started again when it ends, at once the first time, then more and more slowly."""

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
STOP_S_MAX = 8.0
PROBE_INTERVAL_S = 0.02

Probe = Callable[[], Awaitable[bool]]


@dataclass(slots=True)
class Backoff:
    """How long to wait before the next start: 0, 0.2, 0.4, … 10 s; from the beginning after a healthy run.

    ``spread`` as in `backoff_s`: processes that ended together do not start together.
    """

    spread: Callable[[], float] = lambda: 0.0
    failures: int = 0

    def after(self, ran_s: float) -> float:
        """The wait after a run of ``ran_s`` seconds."""
        if ran_s >= HEALTHY_S:
            self.failures = 0
        self.failures += 1
        if self.failures == 1:
            return 0.0
        return backoff_s(self.failures - 1, BACKOFF_FIRST_S, BACKOFF_S_MAX, self.spread())


@dataclass(slots=True)
class Kept:
    """One process with a name, such as ``executor-1``.

    ``changed`` is called when its pid or readiness changes; ``ended`` is set at each end, and when it is no longer kept.
    ``probe`` tells whether it is ready, for programs that do not say so themselves. ``before`` is called before each start,
    and prevents it with an OSError. ``behind`` is called each time that it has become ready, before that is told.
    """

    service: str
    instance: str
    command: Command
    changed: Callable[[Kept], None]
    log: structlog.stdlib.BoundLogger
    probe: Probe | None = None
    before: Callable[[], object] = lambda: None
    behind: Callable[[], Awaitable[None]] | None = None
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
        """Whether it was told to end for good."""
        return self._stopping.is_set()

    def start(self, processes: Processes) -> None:
        """Keep it running from now on."""
        self._task = asyncio.create_task(self._keep(processes), name=f"keep {self.instance}")

    async def stop(self) -> None:
        """End it: asked first, killed when it takes longer than `STOP_S_MAX`."""
        self._stopping.set()
        running = self._running
        if running is not None:
            running.signal(signal.SIGTERM)
            # A process that was stopped (SIGSTOP) would not see the request.
            running.signal(signal.SIGCONT)
            await asyncio.wait({running.ended}, timeout=STOP_S_MAX)
        self.kill()
        if self._task is not None:
            await self._task
        self.ended.set()

    def start_anew(self, why: str) -> None:
        """Have it end, and start it again."""
        if self._running is not None and not self._running.ended.done():
            self.log.warning("is started anew", instance=self.instance, pid=self._running.pid, why=why)
            self._running.signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it now, and do not start it again."""
        self._stopping.set()
        if self._running is not None and not self._running.ended.done():
            self.log.warning("killed: it did not end in time", instance=self.instance, pid=self._running.pid)
            self._running.signal(signal.SIGKILL)

    async def _keep(self, processes: Processes) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            started_at = loop.time()
            code = await self._run_once(processes)
            if self._stopping.is_set():
                return
            wait_s = self._backoff.after(loop.time() - started_at)
            self.log.error(
                "ended, and will be started again",
                instance=self.instance,
                exit_code=code,
                in_s=wait_s,
                last_line=last_line(self.command.log),
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stopping.wait()
            self.restarts += 1

    async def _run_once(self, processes: Processes) -> int | None:
        try:
            self.before()
            running = processes.start(self.command)
        except OSError as error:
            self.log.error("could not be started", instance=self.instance, reason=str(error))  # noqa: TRY400 - said in full
            return None
        self._running, self.since = running, datetime.now(UTC)
        self.log.info("started", instance=self.instance, pid=running.pid)
        self.changed(self)
        watch = asyncio.create_task(self._watch_ready(running), name=f"ready {self.instance}")
        try:
            self.last_exit = await running.ended
        finally:
            watch.cancel()
            self._running = None
            self.ready.clear()
            self.ended.set()
        self.changed(self)
        return self.last_exit

    async def _watch_ready(self, running: Running) -> None:
        if self.probe is None:
            await running.ready.wait()
        else:
            while not await self.probe():  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(PROBE_INTERVAL_S)
        if self.behind is not None:
            await self.behind()
        self.log.info("ready", instance=self.instance, pid=running.pid)
        self.ready.set()
        self.changed(self)
