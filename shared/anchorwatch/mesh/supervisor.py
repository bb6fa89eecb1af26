"""The supervisor: starts the NATS server and the services, keeps them running, and ends them in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog

from anchorwatch.bus.port import Bus
from anchorwatch.core.errors import AnchorWatchError, BadInput, BadSettings
from anchorwatch.mesh import nats_server
from anchorwatch.mesh.control import ControlServer
from anchorwatch.mesh.credentials import CLI, PUBLISHER, SERVICES
from anchorwatch.mesh.files import last_reason, write_private
from anchorwatch.mesh.keeper import Kept
from anchorwatch.mesh.lock import DataLock
from anchorwatch.mesh.process import Processes, adopt_orphans, children_of
from anchorwatch.mesh.roster import NATS, Roster, check_count
from anchorwatch.mesh.state import MeshFile, Remembered, remove_mesh, write_mesh
from anchorwatch.mesh.store_copy import StoreGuard
from anchorwatch.mesh.store_watch import LOOK_S, StoreWatch
from anchorwatch.service.connect import inbox
from anchorwatch.service.runner import CRASHED

START_S_MAX = 60.0
CONNECT_S_MAX = 5.0
LOCK_LOOK_S = 0.2
"""How often the paths of the data directory are compared with the directories that are locked."""
WRITE_AGAIN_S = 1.0
# A service that ends so often before it was ever ready will not become ready by itself.
START_ATTEMPTS_MAX = 3

Tell = Callable[[dict[str, Any]], None]
"""Takes an event for the person who started the mesh: ``ready``, ``note`` or ``failed``."""


class StartFailed(AnchorWatchError):
    """A part of the mesh did not become ready."""

    code = "start_failed"


class DataDirectoryMoved(AnchorWatchError):
    """The path of the data directory, or of the store in it, no longer leads to what this mesh runs on."""

    code = "data_directory_moved"


class Supervisor:
    """One mesh. ``run`` returns the exit code when it has ended, and everything with it."""

    def __init__(
        self,
        roster: Roster,
        services: Sequence[str],
        remembered: Remembered,
        tell: Tell,
        log: structlog.stdlib.BoundLogger,
        lock: DataLock,
        *,
        version: str = "",
    ) -> None:
        self._lock = lock
        self._lost = ""
        self._roster = roster
        self._services = tuple(services)
        self._remembered = remembered
        self._tell = tell
        self._log = log
        self._version = version
        self._processes = Processes()
        self._kept: dict[str, Kept] = {}
        self._stop = asyncio.Event()
        self._scaling = asyncio.Lock()
        self._up = False
        self._started_at = datetime.now(UTC)

    async def run(self, control: ControlServer) -> int:
        self._processes.listen()
        adopt_orphans()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._told_to_stop)
        await control.start()
        start = asyncio.create_task(self._start(), name="start")
        stop = asyncio.create_task(self._stop.wait(), name="stop")
        watches = [asyncio.create_task(watch) for watch in (self._watch_store(), self._watch_lock())]
        try:
            await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
            if start.done() and not self._lost:
                start.result()
                await stop
        finally:
            for task in (start, stop, *watches):
                task.cancel()
            await self._end()
            # By now another mesh's may be at this path.
            if not self._lost:
                await control.close(self._roster.data)
        if self._lost:
            raise DataDirectoryMoved(
                self._lost, hint="the mesh was stopped; `anchorwatch up` where the directory is now continues"
            )
        return 0

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a control request: ``status``, ``scale`` or ``stop``.

        Raises:
            BadInput, NotFound, Refused: it cannot be done; the text says why.
        """
        match request:
            case {"verb": "status"}:
                return self.status()
            case {"verb": "scale", "service": str(service), "count": int(count)}:
                return await self.scale(service, count)
            case {"verb": "stop"}:
                self._told_to_stop()
                return {"pid": os.getpid()}
            case _:
                raise BadInput("a control request is status, scale (service, count) or stop")

    def status(self) -> dict[str, Any]:
        """What runs."""
        return {
            "running": True,
            "ready": self._up and all(kept.ready.is_set() for kept in self._kept.values()),
            "pid": os.getpid(),
            "started_at": self._started_at.isoformat(timespec="seconds"),
            "data_dir": str(self._roster.data.root),
            "api_url": self._roster.api_url,
            "nats_url": self._roster.nats_url,
            "version": self._version,
            "processes": [_row(kept) for kept in self._kept.values()],
        }

    async def scale(self, service: str, count: int) -> dict[str, Any]:
        """Run ``count`` processes of ``service``; the newest go first."""
        check_count(service, count)
        if service not in self._services:
            raise BadInput(f"{service} is not part of this mesh", hint="restart it without --bare or --only")
        # One at a time: names are counted, and the name of a process that ends is not free yet.
        async with self._scaling:
            return await self._scale(service, count)

    async def _scale(self, service: str, count: int) -> dict[str, Any]:
        present = [kept for kept in self._kept.values() if kept.service == service]
        for kept in reversed(present[count:]):
            del self._kept[kept.instance]
            await kept.stop()
        for number in range(len(present) + 1, count + 1):
            self._keep_service(service, f"{service}-{number}")
        self._remembered.counts[service] = count
        self._remembered.save(self._roster.data)
        self._changed()
        return {"service": service, "count": count}

    async def _start(self) -> None:
        async with asyncio.timeout(START_S_MAX) as limit:
            try:
                probe = partial(nats_server.answers, self._roster.nats_port)
                guard = StoreGuard(self._roster.data, self._connect, self._log, self._say)
                command = replace(self._roster.nats(), fds=(self._lock.store_fd,))
                nats = Kept(NATS, NATS, command, self._changed_in, self._log, probe)
                nats.before, nats.behind = partial(self._before_nats, guard), guard.behind
                self._keep(nats)
                await self._until_ready()
                for service in self._services:
                    for number in range(1, self._remembered.counts.get(service, 1) + 1):
                        self._keep_service(service, f"{service}-{number}")
                await self._until_ready()
            except asyncio.CancelledError:
                # Its own flag distinguishes the limit from a stop.
                if limit.expired():
                    late = ", ".join(kept.instance for kept in self._kept.values() if not kept.ready.is_set())
                    raise StartFailed(
                        f"not ready within {START_S_MAX:.0f} s: {late}",
                        hint=f"see the logs in {self._roster.data.logs}",
                    ) from None
                raise
        self._up = True
        self._changed()
        self._tell({"event": "ready"})

    async def _connect(self) -> Bus:
        # Slow to import, and needed only where there is a journal already.
        from anchorwatch.bus import jetstream  # noqa: PLC0415

        return await jetstream.connect(
            self._roster.nats_url,
            user=CLI,
            password=self._roster.credentials.passwords[CLI],
            name="supervisor",
            inbox=inbox(CLI),
            connect_timeout_s=CONNECT_S_MAX,
        )

    async def _watch_store(self) -> None:
        store = StoreWatch(self._roster.data.log(NATS), self._roster.data.nats_store)
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                stuck = store.is_stuck()
            except OSError as error:
                self._log.error("the NATS server's log cannot be read", reason=str(error))
                continue
            if stuck and NATS in self._kept:
                self._kept[NATS].start_anew(
                    "it refuses writes, though there is room: the disk was full before"
                )

    def _check_lock(self) -> None:
        """Prevent a start in a directory that is not the locked one.

        Raises:
            OSError: it is not.
        """
        if lost := self._lock.lost():
            raise OSError(lost)

    def _before_nats(self, guard: StoreGuard) -> None:
        """Check the lock, and write ``nats.conf`` again where a person has edited or replaced it.

        Raises:
            OSError: the server must not be started.
        """
        self._check_lock()
        path, text = self._roster.data.nats_config, self._roster.nats_config
        try:
            same = path.read_text(encoding="utf-8") == text
        except (OSError, ValueError):
            same = False
        if not same:
            write_private(path, text)
            self._log.info("nats_config.written", path=str(path))
        guard.before()

    async def _watch_lock(self) -> None:
        """Stop at once when the directory is moved: processes that open files by path would use another mesh's."""
        while not self._lost:
            await asyncio.sleep(LOCK_LOOK_S)
            self._lost = self._lock.lost()
        self._log.error("data_directory.moved", reason=self._lost)
        # Killed, not stopped: at its end a server writes files by their path. What it acknowledged is synced.
        for kept in self._kept.values():
            kept.kill()
        self._stop.set()

    async def _until_ready(self) -> None:
        """Wait until everything that is kept is ready.

        Raises:
            StartFailed: a part ended so often, or in such a way, that waiting is useless.
            BadSettings: it said that it cannot use its settings.
        """
        waits = [asyncio.create_task(self._ready_or_failed(kept)) for kept in self._kept.values()]
        try:
            await asyncio.gather(*waits)
        finally:
            for wait in waits:
                wait.cancel()

    async def _ready_or_failed(self, kept: Kept) -> None:
        # One that a person scaled away meanwhile is waited for no more.
        while not kept.ready.is_set() and not kept.stopping:
            ready = asyncio.create_task(kept.ready.wait())
            ended = asyncio.create_task(kept.ended.wait())
            await asyncio.wait({ready, ended}, return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
            ended.cancel()
            if kept.ended.is_set() and not kept.stopping:
                kept.ended.clear()
                # Crashes may pass; an exit code of its own choice (bad settings, wrong credentials) will not.
                chosen = kept.last_exit is not None and 0 < kept.last_exit < CRASHED and kept.service != NATS
                if chosen or kept.restarts + 1 >= START_ATTEMPTS_MAX:
                    why = last_reason(kept.command.log)
                    kind = BadSettings if kept.last_exit == BadSettings.exit_code else StartFailed
                    raise kind(f"{kept.instance} does not start: {why}", hint=f"see {kept.command.log}")

    def _keep_service(self, service: str, instance: str) -> None:
        command = self._roster.service(service, instance)
        self._keep(Kept(service, instance, command, self._changed_in, self._log, before=self._check_lock))

    def _keep(self, kept: Kept) -> None:
        self._kept[kept.instance] = kept
        kept.start(self._processes)

    def _changed_in(self, kept: Kept) -> None:
        if self._up and kept.pid is None and not self._stop.is_set():
            self._say(f"{kept.instance} {_how(kept.last_exit)}; it is started again")
        self._changed()

    def _say(self, text: str) -> None:
        self._tell({"event": "note", "text": text})

    def _changed(self) -> None:
        """Keep the file true. It appears when all is ready, and goes before anything ends."""
        if not self._up or self._stop.is_set():
            return
        pids: dict[str, list[int]] = {}
        for kept in self._kept.values():
            pids.setdefault(kept.service, []).extend([kept.pid] if kept.pid is not None else [])
        roster = self._roster
        mesh = MeshFile(
            nats_url=roster.nats_url,
            publisher_user=PUBLISHER,
            publisher_password=roster.credentials.passwords[PUBLISHER],
            api_url=roster.api_url,
            token=roster.credentials.token,
            pid=os.getpid(),
            pids=pids,
            started_at=self._started_at.isoformat(timespec="seconds"),
            version=self._version,
        )
        try:
            write_mesh(roster.data, mesh)
        except OSError as error:
            # A full disk must not end the keeping of processes.
            self._log.error("mesh.json could not be written", reason=str(error))
            asyncio.get_running_loop().call_later(WRITE_AGAIN_S, self._changed)

    def _told_to_stop(self) -> None:
        if self._stop.is_set():
            # A second request: do not wait.
            for kept in self._kept.values():
                kept.kill()
        self._stop.set()

    async def _end(self) -> None:
        """Stop the services, then the packs' companions, then the NATS server, which both need until they end."""
        self._stop.set()
        if not self._lost:
            remove_mesh(self._roster.data)
        kept = list(self._kept.values())
        await asyncio.gather(*(each.stop() for each in kept if each.service in SERVICES))
        await asyncio.gather(*(each.stop() for each in kept if each.service not in (*SERVICES, NATS)))
        await asyncio.gather(*(each.stop() for each in kept if each.service == NATS))
        self._processes.reap()
        # Children of a killed companion were adopted by this process.
        for pid in children_of(os.getpid()):
            self._log.warning("ended an orphan", pid=pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._log.info("stopped")


def _row(kept: Kept) -> dict[str, Any]:
    return {
        "service": kept.service,
        "instance": kept.instance,
        "pid": kept.pid,
        "since": kept.since.isoformat(timespec="seconds") if kept.since is not None else None,
        "restarts": kept.restarts,
        "ready": kept.ready.is_set(),
        "last_exit": kept.last_exit,
        "log": str(kept.command.log),
    }


def _how(code: int | None) -> str:
    """How a process ended, in words."""
    if code is None:
        return "could not be started"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended (exit code {code})"
