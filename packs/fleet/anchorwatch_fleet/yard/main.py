"""The yard as a process of the mesh. Its workers end with it; its promises are stored in its directory."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import structlog
from anchorwatch.packs import Bus, Conflict, Settings, Unavailable

from anchorwatch_fleet.subjects import JOBS_SPEC, RESULTS_SPEC
from anchorwatch_fleet.yard.book import Book
from anchorwatch_fleet.yard.faults import Faults
from anchorwatch_fleet.yard.processes import WorkerProcesses
from anchorwatch_fleet.yard.roster import Roster
from anchorwatch_fleet.yard.server import YardServer
from anchorwatch_fleet.yard.yard import Yard

TICK_S = 0.5
RETRY_S = 0.5


class Clock(Protocol):
    """Unix time, milliseconds."""

    def now_ms(self) -> int: ...


class YardContext(Protocol):
    """The part of a service's context that the yard uses."""

    @property
    def settings(self) -> Settings: ...
    @property
    def bus(self) -> Bus: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def log(self) -> structlog.stdlib.BoundLogger: ...
    @property
    def stopping(self) -> asyncio.Event: ...
    @property
    def ready(self) -> asyncio.Event: ...


async def run(context: YardContext) -> None:
    """Run the yard until a stop request.

    Raises:
        Conflict: another yard uses the same directory.
    """
    directory = context.settings.data_dir / "yard"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _sole_owner(directory), contextlib.closing(Book(directory / "yard.sqlite3")) as book:
        processes = WorkerProcesses(directory, worker_environment(context.settings))
        faults = Faults(births=processes.births)
        roster = Roster(book, context.clock.now_ms)
        yard = Yard(book, roster, processes, hook=faults.hook)
        yard.recover()
        server = YardServer(
            yard, roster, faults, bus=context.bus, now_ms=context.clock.now_ms, log=context.log
        )
        try:
            await _ensure_streams(context)
            await server.open()
            context.ready.set()
            context.log.info("yard open", directory=str(directory))
            await _watch(context, roster)
        finally:
            await yard.shutdown()
            with contextlib.suppress(Unavailable):
                await server.close()


def worker_environment(settings: Settings) -> dict[str, str]:
    """The environment by which a worker reaches the bus, as the yard does."""
    environment = {"ANCHORWATCH_NATS_URL": settings.nats_url}
    if settings.nats_user is not None:
        environment["ANCHORWATCH_NATS_USER"] = settings.nats_user
    if settings.nats_password is not None:
        environment["ANCHORWATCH_NATS_PASSWORD"] = settings.nats_password.get_secret_value()
    return environment


async def _ensure_streams(context: YardContext) -> None:
    while not context.stopping.is_set():
        try:
            for spec in (JOBS_SPEC, RESULTS_SPEC):
                await context.bus.ensure_stream(spec)
        except Unavailable as error:
            context.log.warning("waiting for the bus", error=str(error))
            await _pause(context.stopping, RETRY_S)
        else:
            return


async def _watch(context: YardContext, roster: Roster) -> None:
    deaf_until_ms = context.clock.now_ms()
    while not context.stopping.is_set():
        if not context.bus.connected:
            # A worker is not silent just because the yard cannot receive its reports.
            deaf_until_ms = context.clock.now_ms()
        roster.mark_hung(deaf_until_ms)
        await _pause(context.stopping, TICK_S)


async def _pause(stopping: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()


@contextlib.contextmanager
def _sole_owner(directory: Path) -> Iterator[None]:
    """Hold the directory's lock, which the system releases when the process ends."""
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Conflict(f"another yard uses {directory}", hint="stop it first") from None
        yield
