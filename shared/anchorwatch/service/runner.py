"""Runs one service: ``anchorwatch serve SERVICE``.

It prepares settings, logs, bus, streams and presence, then calls the service's ``run(context)`` until SIGTERM or SIGINT.
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
from anchorwatch.service.context import Identity, ServiceContext, WallClock, identify
from anchorwatch.service.presence import Presence
from anchorwatch.service.provisioning import ensure_topology, events_limits
from anchorwatch.service.readiness import Readiness
from anchorwatch.service.variables import unknown_variables
from anchorwatch.settings import Settings, load
from anchorwatch.topology.streams import journal_stream

GROUP = "anchorwatch.services"
# Less than the supervisor waits before it kills.
DRAIN_S_MAX = 7.0
CLOSE_S_MAX = 1.0
BUS_RETRY_S = 0.25
NOT_READY = (Unavailable, StreamMissing)
"""During a start: the bus is unavailable, or a server of a cluster does not know a newly created stream yet."""
CONNECT_S_MAX = 2.0
NEW_OBJECTS = 10_000
"""The threshold of the cycle collector. Services leave few cycles, and a planner has many long-lived objects: with Python's
default of 700, the collector takes a sixth of its time (docs/performance.md)."""
CRASHED = 70
"""EX_SOFTWARE: the service ended without a stop request."""

Run = Callable[[ServiceContext], Awaitable[None]]

new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
"""Creates the event loop of the process: that of libuv if it is installed, since the loop is most of a turn's cost
(docs/performance.md)."""
try:
    import uvloop
except ImportError:
    pass
else:
    new_event_loop = uvloop.new_event_loop


def names() -> list[str]:
    """All installed services, including those of packs."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def find(service: str) -> Run:
    """The installed service ``service``.

    Raises:
        NotFound: it is not installed; the hint lists the installed services.
    """
    for entry in entry_points(group=GROUP):
        if entry.name == service:
            return cast("Run", entry.load())
    raise NotFound(f"unknown service {service!r}", hint=f"installed: {', '.join(names()) or 'none'}")


def main(service: str, run: Run | None = None) -> int:
    """Run ``service`` until a stop signal; returns the exit code. ``run`` replaces the installed service."""
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
    for name, meant in unknown_variables().items():
        log.warning("variable.unknown", variable=name, similar=meant)
    try:
        failpoints.install(os.environ, log)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_Process(settings, identity, run, log, readiness).serve())
    except AnchorWatchError as error:
        log.error("service.start_failed", reason=str(error), code=error.code)  # noqa: TRY400 - the text suffices
        return error.exit_code
    except Exception:
        log.exception("service.crashed")
        return CRASHED


async def run_service(run: Run, context: ServiceContext) -> None:
    """Call ``run``, and call it again if the bus becomes unavailable before the service is ready."""
    while True:
        try:
            return await run(context)
        except (*NOT_READY, ExceptionGroup) as error:
            if context.ready.is_set() or context.stopping.is_set() or not _is_only_not_ready(error):
                raise
            context.log.warning("bus.waiting", url=context.settings.nats_url, reason=str(error))
        await asyncio.sleep(BUS_RETRY_S)


class _Process:
    """The process of one service."""

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
        """Connect, create or check the streams, and write the presence. Waits for the bus without a limit."""
        waiting_for = ""
        while True:
            bus = None
            try:
                bus = await connect(
                    self._settings, self._identity.instance, on_error=self._bus_error, timeout_s=CONNECT_S_MAX
                )
                await ensure_topology(bus, events_limits(self._settings))
                presence = Presence(bus, self._identity, self._settings.lease_s)
                await presence.start()
                return bus, presence
            except NOT_READY as error:
                if bus is not None:
                    await bus.close()
                if waiting_for != error.code:
                    self._log.warning("bus.waiting", url=self._settings.nats_url, reason=str(error))
                    waiting_for = error.code
            await asyncio.sleep(BUS_RETRY_S)

    def _bus_error(self, text: str) -> None:
        self._log.warning("bus.error", reason=text)

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
        self._log.info("service.started", incarnation=self._identity.incarnation)
        work = asyncio.create_task(run_service(self._run, context), name="work")
        announce = asyncio.create_task(self._announce_ready(context), name="ready")
        replaced = asyncio.create_task(presence.replaced.wait(), name="replaced")
        await asyncio.wait({work, stop, replaced}, return_when=asyncio.FIRST_COMPLETED)
        announce.cancel()
        if work.done() or stop.done():
            replaced.cancel()
            return await self._drain(work)
        self._log.error(
            "instance.replaced",
            reason="another process has this name; give each its own ANCHORWATCH_INSTANCE",
        )
        self._stopping.set()
        await self._drain(work)
        return CRASHED

    async def _drain(self, work: asyncio.Future[None]) -> int:
        """Wait a bounded time until the service has finished its work."""
        stopping = self._stopping.is_set()
        await asyncio.wait({work}, timeout=DRAIN_S_MAX)
        if not work.done():
            self._log.warning(
                "service.drain_timeout", wait_s=DRAIN_S_MAX, reason="unfinished work will be delivered again"
            )
            work.cancel()
            await asyncio.wait({work}, timeout=CLOSE_S_MAX)
            return 0
        if not work.cancelled() and (error := work.exception()) is not None:
            if isinstance(error, BadSettings):
                raise error
            self._log.error("service.crashed", exc_info=error)
            return CRASHED
        if not stopping:
            self._log.error("service.ended_without_stop")
            return CRASHED
        self._log.info("service.stopped")
        return 0

    async def _announce_ready(self, context: ServiceContext) -> None:
        await context.ready.wait()
        self._log.info("service.ready")
        self._readiness.announce()


def _is_only_not_ready(error: Exception) -> bool:
    return isinstance(error, NOT_READY) or (
        isinstance(error, ExceptionGroup) and error.split(NOT_READY)[1] is None
    )
