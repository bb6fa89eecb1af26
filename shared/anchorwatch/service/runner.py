"""Runs one service: ``anchorwatch serve SERVICE``.

Settings, logs, the bus, the streams, presence; then the service's own ``run(context)``, until SIGTERM or SIGINT.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import entry_points
from typing import cast

import structlog

from anchorwatch.bus.port import Bus, StreamMissing
from anchorwatch.core.errors import AnchorWatchError, BadSettings, NotFound, Unavailable
from anchorwatch.journal.commit import Committer
from anchorwatch.service import failpoints, logs
from anchorwatch.service.connect import connect
from anchorwatch.service.context import Identity, ServiceContext, WallClock
from anchorwatch.service.identity import identify
from anchorwatch.service.loops import new_event_loop
from anchorwatch.service.made import ensure_topology
from anchorwatch.service.presence import Presence
from anchorwatch.service.readiness import Readiness
from anchorwatch.settings import Settings, load
from anchorwatch.topology.streams import journal_stream

GROUP = "anchorwatch.services"
# The supervisor waits a little longer before it kills.
DRAIN_S_MAX = 7.0
CLOSE_S_MAX = 1.0
BUS_RETRY_S = 0.25
NOT_THERE = (Unavailable, StreamMissing)
"""While a service starts: the bus is away; or, in a cluster, a server has not heard yet of a stream that was just made."""
CONNECT_S_MAX = 2.0
NEW_OBJECTS = 10_000
"""So many are made before Python looks for dead cycles among them. Services leave hardly any, and a planner knows a great many
objects that live long: at Python's own 700, the looking is a sixth of what it does (docs/performance.md)."""
CRASHED = 70
"""EX_SOFTWARE: the service ended by itself."""

Run = Callable[[ServiceContext], Awaitable[None]]


def names() -> list[str]:
    """All installed services, those that packs bring included."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def find(service: str) -> Run:
    """The service of that name.

    Raises:
        NotFound: it is not installed; the hint lists those that are.
    """
    for entry in entry_points(group=GROUP):
        if entry.name == service:
            return cast("Run", entry.load())
    raise NotFound(f"there is no service {service!r}", hint=f"installed: {', '.join(names()) or 'none'}")


def main(service: str, run: Run | None = None) -> int:
    """Run ``service`` until it is told to stop; returns the exit code. ``run``: in place of the installed one."""
    readiness = Readiness()
    try:
        settings = load()
        identity = identify(service, settings.instance)
        run = run or find(service)
    except AnchorWatchError as error:
        sys.stderr.write(f"anchorwatch serve: {error}\n")
        return error.exit_code
    log = logs.configure(settings, service=service, instance=identity.instance)
    gc.set_threshold(NEW_OBJECTS)
    try:
        failpoints.install(os.environ, log)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_Process(settings, identity, run, log, readiness).serve())
    except AnchorWatchError as error:
        log.error("cannot start", reason=str(error), code=error.code)  # noqa: TRY400 - its text says it all
        return error.exit_code
    except Exception:
        log.exception("crashed")
        return CRASHED


async def work_of(run: Run, context: ServiceContext) -> None:
    """The service's own work; begun anew where the bus goes away before it was ready, which is no fault of its own."""
    while True:
        try:
            return await run(context)
        except (*NOT_THERE, ExceptionGroup) as error:
            if context.ready.is_set() or context.stopping.is_set() or not _only_not_there(error):
                raise
            context.log.warning("waiting for the bus", url=context.settings.nats_url, reason=str(error))
        await asyncio.sleep(BUS_RETRY_S)


class _Process:
    """One service at work."""

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        run: Run,
        log: structlog.stdlib.BoundLogger,
        readiness: Readiness,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._run = run
        self._log = log
        self._readiness = readiness
        self._stopping = asyncio.Event()

    async def serve(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        stop = asyncio.create_task(self._stopping.wait(), name="stopping")
        start = asyncio.create_task(self._start(), name="start")
        await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not start.done():
            start.cancel()
            await asyncio.wait({start})
            return 0
        bus, presence = start.result()
        try:
            return await self._work(bus, presence, stop)
        finally:
            with contextlib.suppress(TimeoutError, AnchorWatchError):
                async with asyncio.timeout(CLOSE_S_MAX):
                    await presence.stop()
                    await bus.close()

    async def _start(self) -> tuple[Bus, Presence]:
        """Connect, make or check the streams, and be present. Waits for the bus as long as it takes."""
        waiting_for = ""
        while True:
            bus = None
            try:
                bus = await connect(
                    self._settings, self._identity.instance, on_error=self._bus_error, timeout_s=CONNECT_S_MAX
                )
                await ensure_topology(bus)
                presence = Presence(bus, self._identity, self._settings.lease_s)
                await presence.start()
                return bus, presence
            except NOT_THERE as error:
                if bus is not None:
                    await bus.close()
                if waiting_for != error.code:
                    self._log.warning("waiting for the bus", url=self._settings.nats_url, reason=str(error))
                    waiting_for = error.code
            await asyncio.sleep(BUS_RETRY_S)

    def _bus_error(self, text: str) -> None:
        self._log.warning("bus", reason=text)

    async def _work(self, bus: Bus, presence: Presence, stop: asyncio.Task[bool]) -> int:
        context = ServiceContext(
            settings=self._settings,
            bus=bus,
            committer=Committer(bus, journal_stream()),
            identity=self._identity,
            clock=WallClock(),
            log=self._log,
            peers=presence,
            crashes=presence.crashes,
            stopping=self._stopping,
        )
        self._log.info("started", incarnation=self._identity.incarnation)
        work = asyncio.create_task(work_of(self._run, context), name="work")
        told = asyncio.create_task(self._tell_ready(context), name="ready")
        replaced = asyncio.create_task(presence.replaced.wait(), name="replaced")
        await asyncio.wait({work, stop, replaced}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if work.done() or stop.done():
            replaced.cancel()
            return await self._drain(work)
        self._log.error(
            "another process took this instance's name", hint="give each its own ANCHORWATCH_INSTANCE"
        )
        self._stopping.set()
        await self._drain(work)
        return CRASHED

    async def _drain(self, work: asyncio.Future[None]) -> int:
        """Let the service put its work down, for a bounded time."""
        stopping = self._stopping.is_set()
        await asyncio.wait({work}, timeout=DRAIN_S_MAX)
        if not work.done():
            self._log.warning(
                "did not put its work down in time; what is unfinished will be redelivered",
                seconds=DRAIN_S_MAX,
            )
            work.cancel()
            await asyncio.wait({work}, timeout=CLOSE_S_MAX)
            return 0
        if not work.cancelled() and (error := work.exception()) is not None:
            if isinstance(error, BadSettings):
                raise error
            self._log.error("crashed", exc_info=error)
            return CRASHED
        if not stopping:
            self._log.error("ended without being told to")
            return CRASHED
        self._log.info("stopped")
        return 0

    async def _tell_ready(self, context: ServiceContext) -> None:
        await context.ready.wait()
        self._log.info("ready")
        self._readiness.announce()


def _only_not_there(error: Exception) -> bool:
    return isinstance(error, NOT_THERE) or (
        isinstance(error, ExceptionGroup) and error.split(NOT_THERE)[1] is None
    )
