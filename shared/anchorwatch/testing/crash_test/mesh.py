"""A mesh without a supervisor: the test starts, arms, kills, stops and continues each process."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from anchorwatch.bus.port import Bus
from anchorwatch.cli.api import Api
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.mesh import nats_server, ports
from anchorwatch.mesh.credentials import CLI, Credentials
from anchorwatch.mesh.files import DataDir, last_reason, write_private
from anchorwatch.mesh.roster import NATS, Roster
from anchorwatch.service.connect import connect
from anchorwatch.service.failpoints import INJECTED, VARIABLE
from anchorwatch.settings import PREFIX, load
from anchorwatch.testing.crash_test.fork_server import Child, ForkServer
from anchorwatch.testing.live import until

READY_S_MAX = 30.0
API_RETRY_S = 120.0
"""How long a client repeats a request while the gateway restarts."""


class DidNotStart(AnchorWatchError):
    """A process ended before it was ready."""

    code = "did_not_start"


@dataclass
class CrashMesh:
    """One mesh in its own directory. ``counts``: processes of each service; ``settings``: in the form of the environment.

    ``kept``: prefixes of variables in this process's environment that its processes inherit (a pack's settings).
    """

    root: Path
    counts: Mapping[str, int]
    settings: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    modules: Sequence[str] = ()
    children: dict[str, Child] = field(default_factory=dict)
    _roster: Roster | None = None

    @property
    def data(self) -> DataDir:
        return DataDir.at(self.root)

    @property
    def roster(self) -> Roster:
        assert self._roster is not None, "open it first"  # noqa: S101
        return self._roster

    @property
    def nats_url(self) -> str:
        """The server's address for the processes."""
        return self.roster.nats_url

    @property
    def instances(self) -> tuple[str, ...]:
        """The names of all service processes, such as ``executor-2``."""
        return tuple(f"{service}-{n}" for service, count in self.counts.items() for n in range(1, count + 1))

    # ------------------------------------------------------------ life cycle

    async def open(self) -> None:
        """Start the server and every process, and wait until all are ready.

        Raises:
            DidNotStart: a process does not start.
        """
        self.data.make()
        self.data.nats_store.mkdir(mode=0o700, exist_ok=True)
        nats = ports.any_free()
        self._roster = Roster(
            data=self.data,
            credentials=Credentials.load_or_make(self.data),
            nats_port=nats,
            port=ports.any_free(excluded={nats}),
            host=nats_server.LOOPBACK,
            inherited=self._inherited(),
        )
        write_private(self.data.nats_config, self.roster.nats_config)
        self._fork_server = ForkServer(self.modules)
        await self.start_nats()
        for instance in self.instances:
            self.start(instance)
        for instance in self.instances:
            await self.ready(instance)

    def close(self) -> None:
        """Stop every process."""
        for child in self.children.values():
            child.signal(signal.SIGCONT)
            child.signal(signal.SIGTERM)
        for instance in sorted(self.children, key=lambda name: name == NATS):
            self._forget(instance)

    def _inherited(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(PREFIX) or name.startswith(self.kept or "=")
        }
        return {**kept, **self.settings}

    # ------------------------------------------------------------ processes

    def start(self, instance: str, failpoints: str = "") -> Child:
        """Start a process, after stopping a previous one with this name."""
        self._forget(instance)
        service = instance.rpartition("-")[0]
        command = self.roster.service(service, instance)
        environment = {**command.environment, f"{PREFIX}NATS_URL": self.nats_url, VARIABLE: failpoints}
        self.children[instance] = self._fork_server.start((service,), environment, command.log)
        return self.children[instance]

    async def ready_or_ended(self, instance: str) -> bool:
        """Wait until a process is ready or has ended; returns whether it is ready."""
        child = self.children[instance]

        async def settled() -> bool:
            return child.ready or child.exit_code is not None

        await until(settled, f"{instance} is ready", READY_S_MAX)
        return child.ready

    async def ready(self, instance: str) -> None:
        """Wait until a process is ready.

        Raises:
            DidNotStart: it ended first.
        """
        child = self.children[instance]
        if not await self.ready_or_ended(instance):
            reason = last_reason(self.data.log(instance))
            raise DidNotStart(f"{instance} ended with {child.exit_code}: {reason}")

    async def start_nats(self) -> None:
        """Start the server on its port and its data, and wait until it answers.

        Raises:
            DidNotStart: it ended, for example because another process listens on its port.
        """
        self._forget(NATS)
        command = self.roster.nats()
        # It runs in the fork server's working directory, not in its own.
        arguments = (*command.arguments, "--store_dir", str(self.data.nats_store))
        server = self._fork_server.start(arguments, command.environment, command.log)
        self.children[NATS] = server

        async def answers_or_ended() -> bool:
            return server.exit_code is not None or await nats_server.is_listening(self.roster.nats_port)

        await until(answers_or_ended, "the NATS server answers", READY_S_MAX)
        if server.exit_code is not None:
            raise DidNotStart(f"the NATS server ended with {server.exit_code}: its log is {command.log}")

    def kill(self, instance: str) -> None:
        """Kill a process with signal 9."""
        self.children[instance].kill()

    def pause(self, instance: str) -> None:
        """Stop a process (SIGSTOP): its connections stay open."""
        self.children[instance].signal(signal.SIGSTOP)

    def resume(self, instance: str) -> None:
        self.children[instance].signal(signal.SIGCONT)

    def ended(self) -> dict[str, int]:
        """The exit code of every process that has ended and was not started again."""
        codes = {name: child.exit_code for name, child in self.children.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def take(self, instance: str) -> Child:
        """Remove a process from the mesh without ending it; the caller must end it."""
        return self.children.pop(instance)

    def _forget(self, instance: str) -> None:
        child = self.children.pop(instance, None)
        if child is not None:
            child.stop()
            child.close()

    # ------------------------------------------------------------ clients

    def api(self) -> Api:
        """A client of the HTTP API that repeats requests while the gateway restarts."""
        return Api(self.roster.api_url, self.roster.credentials.token, retry_s=API_RETRY_S)

    @asynccontextmanager
    async def bus(self, user: str = CLI) -> AsyncIterator[Bus]:
        """A connection of one of the mesh's users."""
        settings = load(
            nats_url=self.nats_url,
            nats_user=user,
            nats_password=self.roster.credentials.passwords[user],
        )
        bus = await connect(settings, "anchorwatch-crash-test")
        try:
            yield bus
        finally:
            await bus.close()

    def faults(self) -> list[str]:
        """Log lines with a traceback, except those that a failpoint caused. A killed process leaves none."""
        return [
            f"{log.name}: {line}"
            for log in sorted(self.data.logs.glob("*.log*"))
            for line in log.read_text(errors="replace").splitlines()
            if ('"exception"' in line or line.startswith("Traceback")) and INJECTED not in line
        ]
