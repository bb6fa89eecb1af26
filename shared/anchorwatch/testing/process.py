"""A process of a simulated mesh: it can be killed, stopped, disconnected and started again at any time.

All code of a process runs in its own tasks, and `current` returns the process of the running code. So a kill is
complete: no line of the process runs after the edge at which it dies, except Python's clean-up, whose calls to the bus
fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from random import Random

import structlog

from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.journal.commit import Committer
from anchorwatch.service.context import Identity, ServiceContext
from anchorwatch.service.presence import Presence
from anchorwatch.service.runner import BUS_RETRY_S, DRAIN_S_MAX, run_service
from anchorwatch.settings import Settings
from anchorwatch.testing.bus import SimBus, SimServer
from anchorwatch.testing.bus.loop import SimTask, in_order
from anchorwatch.topology.streams import journal_stream

Run = Callable[[ServiceContext], Awaitable[None]]

_life: contextvars.ContextVar[Life | None] = contextvars.ContextVar("life", default=None)


def current() -> Life | None:
    """The process that this code runs in; None outside of all processes."""
    return _life.get()


@dataclass(frozen=True, slots=True)
class World:
    """What all processes of a mesh share. ``crashed`` is called with a process that ended by itself."""

    server: SimServer
    settings: Settings
    log: structlog.stdlib.BoundLogger
    crashed: Callable[[Process, BaseException], None]


class LoopClock:
    """The simulation's time for a process; a stopped process wakes only after it continues."""

    def __init__(self, server: SimServer, life: Life | None = None) -> None:
        self._server = server
        self._life = life

    def now_ms(self) -> int:
        return self._server.now_ms()

    def elapsed_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self._life is not None:
            await self._life.running()


class Life:
    """One incarnation of a process, from its start to its death."""

    def __init__(self, process: Process, bus: SimBus, identity: Identity) -> None:
        self.process = process
        self.bus = bus
        self.identity = identity
        self.dead = False
        self.task: asyncio.Task[None] | None = None
        self._thawed = asyncio.Event()
        self._thawed.set()

    async def running(self) -> None:
        """Return when the process is not stopped."""
        await self._thawed.wait()

    @property
    def stopped(self) -> bool:
        return not self._thawed.is_set()

    def stop(self) -> None:
        """Stop, as by SIGSTOP."""
        self._thawed.clear()
        self.bus.freeze()

    def resume(self) -> None:
        """Continue, as by SIGCONT."""
        self._thawed.set()
        self.bus.thaw()

    def cut(self) -> None:
        """Break its connection; the process keeps running."""
        self.bus.cut()

    def reconnect(self) -> None:
        """Undo a cut."""
        self.bus.reconnect()

    def die(self) -> None:
        """Die, as by SIGKILL: no more code of it runs, and no farewell is sent."""
        if self.dead:
            return
        self.dead = True
        self._thawed.set()
        self.bus.kill()
        loop = asyncio.get_running_loop()
        for task in in_order(asyncio.all_tasks(loop)):
            if isinstance(task, SimTask) and task.created_in.get(_life) is self:
                task.cancel()

    async def end(self) -> None:
        """Wait until its tasks have ended."""
        if self.task is not None:
            await asyncio.wait({self.task})

    def die_here(self) -> None:
        """Die at the calling line, which runs in this process.

        Raises:
            CancelledError: always, so that no later line runs.
        """
        self.die()
        raise asyncio.CancelledError


class Process:
    """A service under one instance name. Each start is a new incarnation; the previous one may still run as a zombie."""

    def __init__(self, world: World, service: str, instance: str, run: Run) -> None:
        self.service = service
        self.instance = instance
        self.life: Life | None = None
        self._world = world
        self._run = run
        self._starts = 0

    @property
    def running(self) -> bool:
        return self.life is not None and not self.life.dead

    def launch(self) -> asyncio.Event:
        """Start it; the event is set when it is ready."""
        self._starts += 1
        server = self._world.server
        identity = Identity(self.service, self.instance, f"i{self._starts}")
        bus = server.connect(name=f"{self.instance}#{self._starts}")
        life = self.life = Life(self, bus, identity)
        context = self._context(life)
        scope = contextvars.copy_context()
        scope.run(_life.set, life)
        work = self._live(life, context)
        life.task = asyncio.get_running_loop().create_task(work, name=self.instance, context=scope)
        # Retrieves the failure: `start` and the world's ``crashed`` report it.
        life.task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return context.ready

    async def start(self) -> None:
        """Start it, and wait until it is ready, or has ended."""
        ready = asyncio.create_task(self.launch().wait())
        task = self.life.task if self.life else None
        assert task is not None  # noqa: S101 - just launched
        await asyncio.wait({ready, task}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if task.done() and not task.cancelled():
            task.result()

    async def kill(self) -> None:
        """Kill it, as by ``kill -9``, and wait for its end."""
        if self.life is not None:
            self.life.die()
            await self.life.end()

    def cut(self) -> None:
        """Break its connection; the process keeps running."""
        if self.life is not None:
            self.life.cut()

    def reconnect(self) -> None:
        """Undo a cut."""
        if self.life is not None:
            self.life.reconnect()

    def _context(self, life: Life) -> ServiceContext:
        world = self._world
        monotonic = asyncio.get_running_loop().time
        presence = Presence(life.bus, life.identity, world.settings.lease_s, monotonic=monotonic)
        return ServiceContext(
            settings=world.settings,
            bus=life.bus,
            committer=Committer(life.bus, journal_stream()),
            identity=life.identity,
            clock=LoopClock(world.server, life),
            log=world.log.bind(instance=self.instance),
            peers=presence,
            random=Random(life.identity.execution_id),  # noqa: S311 - repeatability is the purpose
        )

    async def _live(self, life: Life, context: ServiceContext) -> None:
        """The work of a real process's runner, without signals."""
        presence = context.peers
        assert isinstance(presence, Presence)  # noqa: S101 - made above
        try:
            await _start_presence(presence)
            await _work(self._run, replace(context, crashes=presence.crashes), presence)
        except Exception as error:
            if life.dead:
                return
            life.die()
            self._world.crashed(self, error)
            raise
        finally:
            # A killed process removes no lease: its bus is dead.
            await presence.stop()


async def _start_presence(presence: Presence) -> None:
    while True:
        try:
            await presence.start()
            return
        except AnchorWatchError as error:
            if not error.retryable:
                raise
            await asyncio.sleep(BUS_RETRY_S)


async def _work(run: Run, context: ServiceContext, presence: Presence) -> None:
    work = asyncio.ensure_future(run_service(run, context))
    replaced = asyncio.ensure_future(presence.replaced.wait())
    try:
        await asyncio.wait({work, replaced}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            context.stopping.set()
            await asyncio.wait({work}, timeout=DRAIN_S_MAX)
        if work.done():
            work.result()
    finally:
        work.cancel()
        replaced.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await asyncio.gather(work, replaced)
