"""The supervisor: starts the NATS server and the services, restarts them when they end, and stops them in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
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
from anchorwatch.mesh.lock import DataLock
from anchorwatch.mesh.managed_process import ManagedProcess
from anchorwatch.mesh.mesh_settings import MeshSettings
from anchorwatch.mesh.process import Processes, adopt_orphans, children_of
from anchorwatch.mesh.roster import NATS, Roster, check_count
from anchorwatch.mesh.state import MeshFile, Report, SavedState, remove_mesh, write_mesh
from anchorwatch.mesh.store_copy import StoreGuard
from anchorwatch.mesh.store_watch import WATCH_INTERVAL_S, StoreWatch
from anchorwatch.service.connect import inbox
from anchorwatch.service.runner import CRASHED

START_S_MAX = 60.0
CONNECT_S_MAX = 5.0
LOCK_CHECK_INTERVAL_S = 0.2
MESH_FILE_RETRY_S = 1.0
# A service that ends this many times before it is ready will not become ready.
START_ATTEMPTS_MAX = 3


class StartFailed(AnchorWatchError):
    """A process of the mesh did not become ready."""

    code = "start_failed"


class DataDirectoryMoved(AnchorWatchError):
    """The path of the data directory or of its store no longer leads to the directory that this mesh has locked."""

    code = "data_directory_moved"


class Supervisor:
    """One mesh. ``run`` returns the exit code once every process of the mesh has ended."""

    def __init__(
        self,
        roster: Roster,
        services: Sequence[str],
        saved: SavedState,
        report: Report,
        log: structlog.stdlib.BoundLogger,
        lock: DataLock,
        *,
        settings: MeshSettings,
        version: str = "",
    ) -> None:
        self._lock = lock
        self._lock_lost = ""
        self._roster = roster
        self._services = tuple(services)
        self._saved = saved
        self._settings = settings
        self._report = report
        self._log = log
        self._version = version
        self._processes = Processes()
        self._children: dict[str, ManagedProcess] = {}
        self._stop = asyncio.Event()
        self._scaling = asyncio.Lock()
        self._up = False
        self._started_at = datetime.now(UTC)

    async def run(self, control: ControlServer) -> int:
        self._processes.listen()
        adopt_orphans()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._request_stop)
        await control.start()
        start = asyncio.create_task(self._start(), name="start")
        stop = asyncio.create_task(self._stop.wait(), name="stop")
        watches = [asyncio.create_task(watch) for watch in (self._watch_store(), self._watch_lock())]
        try:
            await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
            if start.done() and not self._lock_lost:
                start.result()
                await stop
        finally:
            for task in (start, stop, *watches):
                task.cancel()
            await self._end()
            # Another mesh may have its socket at this path by now.
            if not self._lock_lost:
                await control.close(self._roster.data)
        if self._lock_lost:
            raise DataDirectoryMoved(
                self._lock_lost,
                hint="the mesh was stopped; run `anchorwatch up` on the directory's new path to continue",
            )
        return 0

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a control request: ``status``, ``scale`` or ``stop``.

        Raises:
            BadInput, NotFound, Refused: the request is invalid or not possible.
        """
        match request:
            case {"verb": "status"}:
                return self.status()
            case {"verb": "scale", "service": str(service), "count": int(count)}:
                return await self.scale(service, count)
            case {"verb": "stop"}:
                self._request_stop()
                return {"pid": os.getpid()}
            case _:
                raise BadInput("unknown control request (known: status, scale with service and count, stop)")

    def status(self) -> dict[str, Any]:
        return {
            "running": True,
            "ready": self._up and all(child.ready.is_set() for child in self._children.values()),
            "pid": os.getpid(),
            "started_at": self._started_at.isoformat(timespec="seconds"),
            "data_dir": str(self._roster.data.root),
            "api_url": self._roster.api_url,
            "nats_url": self._roster.nats_url,
            "version": self._version,
            "processes": [_row(child) for child in self._children.values()],
        }

    async def scale(self, service: str, count: int) -> dict[str, Any]:
        """Run ``count`` processes of ``service``; the newest are stopped first."""
        check_count(service, count)
        if service not in self._services:
            raise BadInput(f"{service} is not part of this mesh", hint="restart it without --bare or --only")
        # One at a time: instances are numbered, and a name is in use until its process has ended.
        async with self._scaling:
            return await self._scale(service, count)

    async def _scale(self, service: str, count: int) -> dict[str, Any]:
        present = [child for child in self._children.values() if child.service == service]
        for child in reversed(present[count:]):
            del self._children[child.instance]
            await child.stop()
        for number in range(len(present) + 1, count + 1):
            self._start_service(service, f"{service}-{number}")
        self._saved.counts[service] = count
        self._saved.save(self._roster.data)
        self._update_mesh_file()
        return {"service": service, "count": count}

    async def _start(self) -> None:
        async with asyncio.timeout(START_S_MAX) as limit:
            try:
                probe = partial(nats_server.is_listening, self._roster.nats_port)
                guard = StoreGuard(self._roster.data, self._connect, self._log, self._note)
                command = replace(self._roster.nats(), fds=(self._lock.store_fd,))
                nats = ManagedProcess(NATS, NATS, command, self._on_child_change, self._log, probe)
                nats.before_start, nats.on_ready = partial(self._before_nats, guard), guard.after_start
                self._start_child(nats)
                await self._until_ready()
                for service in self._services:
                    for number in range(1, self._saved.counts.get(service, 1) + 1):
                        self._start_service(service, f"{service}-{number}")
                await self._until_ready()
            except asyncio.CancelledError:
                # Only `expired` distinguishes the time limit from a stop.
                if limit.expired():
                    unready = ", ".join(
                        child.instance for child in self._children.values() if not child.ready.is_set()
                    )
                    raise StartFailed(
                        f"not ready within {START_S_MAX:.0f} s: {unready}",
                        hint=f"see the logs in {self._roster.data.logs}",
                    ) from None
                raise
        # Only now: settings with which no service starts are not kept.
        self._settings.save(self._roster.data)
        self._up = True
        self._update_mesh_file()
        self._report({"event": "ready"})

    async def _connect(self) -> Bus:
        # Slow to import, and needed only if there is a journal.
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
            await asyncio.sleep(WATCH_INTERVAL_S)
            try:
                stuck = store.is_stuck()
            except OSError as error:
                self._log.error("nats_log.read_failed", reason=str(error))
                continue
            if stuck and NATS in self._children:
                self._children[NATS].restart("it refuses writes although the disk has free space again")

    def _check_lock(self) -> None:
        """Prevent a start in a directory that is not the locked one.

        Raises:
            OSError: a path no longer leads to the locked directory.
        """
        if reason := self._lock.lost_reason():
            raise OSError(reason)

    def _before_nats(self, guard: StoreGuard) -> None:
        """Check the lock, restore ``nats.conf`` if a person has edited it, and copy the store's newest files.

        Raises:
            OSError: the server must not start.
        """
        self._check_lock()
        path, text = self._roster.data.nats_config, self._roster.nats_config
        try:
            current = path.read_text(encoding="utf-8")
        except (OSError, ValueError):
            current = ""
        if current != text:
            write_private(path, text)
            self._log.info("nats_config.written", path=str(path))
        guard.before_start()

    async def _watch_lock(self) -> None:
        """Stop at once if the directory is moved: processes that open files by path would use those of another mesh."""
        while not self._lock_lost:
            await asyncio.sleep(LOCK_CHECK_INTERVAL_S)
            self._lock_lost = self._lock.lost_reason()
        self._log.error("data_directory.moved", reason=self._lock_lost)
        # Killed, not stopped: a server that stops writes files by path. Each write that it acknowledged is synced.
        for child in self._children.values():
            child.kill()
        self._stop.set()

    async def _until_ready(self) -> None:
        """Wait until every process is ready.

        Raises:
            StartFailed: a process ended `START_ATTEMPTS_MAX` times, or with an exit code that a restart does not change.
            BadSettings: a process reported invalid settings.
        """
        waits = [asyncio.create_task(self._ready_or_failed(child)) for child in self._children.values()]
        try:
            await asyncio.gather(*waits)
        finally:
            for wait in waits:
                wait.cancel()

    async def _ready_or_failed(self, child: ManagedProcess) -> None:
        # A process that a person removes by scaling need not become ready.
        while not child.ready.is_set() and not child.stopping:
            ready = asyncio.create_task(child.ready.wait())
            ended = asyncio.create_task(child.ended.wait())
            await asyncio.wait({ready, ended}, return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
            ended.cancel()
            if child.ended.is_set() and not child.stopping:
                child.ended.clear()
                # A crash may not repeat; an exit code that the service chose (settings, credentials) will.
                deliberate = (
                    child.last_exit is not None and 0 < child.last_exit < CRASHED and child.service != NATS
                )
                if deliberate or child.restarts + 1 >= START_ATTEMPTS_MAX:
                    reason = last_reason(child.command.log)
                    kind = BadSettings if child.last_exit == BadSettings.exit_code else StartFailed
                    raise kind(f"{child.instance} does not start: {reason}", hint=f"see {child.command.log}")

    def _start_service(self, service: str, instance: str) -> None:
        command = self._roster.service(service, instance)
        self._start_child(
            ManagedProcess(
                service, instance, command, self._on_child_change, self._log, before_start=self._check_lock
            )
        )

    def _start_child(self, child: ManagedProcess) -> None:
        self._children[child.instance] = child
        child.start(self._processes)

    def _on_child_change(self, child: ManagedProcess) -> None:
        if self._up and child.pid is None and not child.stopping and not self._stop.is_set():
            self._note(f"{child.instance} {_describe_exit(child.last_exit)}; it is restarted")
        self._update_mesh_file()

    def _note(self, text: str) -> None:
        self._report({"event": "note", "text": text})

    def _update_mesh_file(self) -> None:
        """Write ``mesh.json``. It exists from when every process is ready until a stop begins."""
        if not self._up or self._stop.is_set():
            return
        pids: dict[str, list[int]] = {}
        for child in self._children.values():
            pids.setdefault(child.service, []).extend([child.pid] if child.pid is not None else [])
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
            # A full disk must not stop the supervision.
            self._log.error("mesh_file.write_failed", reason=str(error))
            asyncio.get_running_loop().call_later(MESH_FILE_RETRY_S, self._update_mesh_file)

    def _request_stop(self) -> None:
        if self._stop.is_set():
            # A second request: kill instead of waiting.
            for child in self._children.values():
                child.kill()
        self._stop.set()

    async def _end(self) -> None:
        """Stop the services, then the services of packs, then the NATS server, which both need until they end."""
        self._stop.set()
        if not self._lock_lost:
            remove_mesh(self._roster.data)
        children = list(self._children.values())
        await asyncio.gather(*(each.stop() for each in children if each.service in SERVICES))
        await asyncio.gather(*(each.stop() for each in children if each.service not in (*SERVICES, NATS)))
        await asyncio.gather(*(each.stop() for each in children if each.service == NATS))
        self._processes.reap()
        # This process has adopted the children of killed services.
        for pid in children_of(os.getpid()):
            self._log.warning("orphan.killed", pid=pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._log.info("mesh.stopped")


def _row(child: ManagedProcess) -> dict[str, Any]:
    return {
        "service": child.service,
        "instance": child.instance,
        "pid": child.pid,
        "since": child.since.isoformat(timespec="seconds") if child.since is not None else None,
        "restarts": child.restarts,
        "ready": child.ready.is_set(),
        "last_exit": child.last_exit,
        "log": str(child.command.log),
    }


def _describe_exit(code: int | None) -> str:
    """How a process ended, for the terminal."""
    if code is None:
        return "could not be started"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended (exit code {code})"
