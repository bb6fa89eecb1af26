"""A mesh whose processes are started, armed, killed, stopped and continued one by one; nobody else brings them back."""

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
from anchorwatch.testing.crash_test.nursery import Child, Nursery
from anchorwatch.testing.live import until

READY_S_MAX = 30.0
API_RETRY_S = 30.0
"""A gateway that was killed is back within a moment; a client rides that out."""


class DidNotStart(AnchorWatchError):
    """A process ended before it worked."""

    code = "did_not_start"


@dataclass
class CrashMesh:
    """One mesh in a directory of its own. ``counts``: how many of each service; ``settings``: as in the environment.

    ``kept``: names in this process's environment, by their beginning, that its processes are to see (a pack's own settings).
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
        """Where its processes find the server."""
        return self.roster.nats_url

    @property
    def instances(self) -> tuple[str, ...]:
        """The names of all processes of services, such as ``executor-2``."""
        return tuple(f"{service}-{n}" for service, count in self.counts.items() for n in range(1, count + 1))

    # ------------------------------------------------------------ its life

    async def open(self) -> None:
        """Start the server and every process, and wait until all of them work.

        Raises:
            DidNotStart: one does not.
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
        self._nursery = Nursery(self.modules)
        await self.start_nats()
        for instance in self.instances:
            self.start(instance)
        for instance in self.instances:
            await self.ready(instance)

    def close(self) -> None:
        """End everything."""
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

    # ------------------------------------------------------------ its processes

    def start(self, instance: str, failpoints: str = "") -> Child:
        """Start a process; the one that had the name before is ended first, in order."""
        self._forget(instance)
        service = instance.rpartition("-")[0]
        command = self.roster.service(service, instance)
        environment = {**command.environment, f"{PREFIX}NATS_URL": self.nats_url, VARIABLE: failpoints}
        self.children[instance] = self._nursery.start((service,), environment, command.log)
        return self.children[instance]

    async def came(self, instance: str) -> bool:
        """Wait until a process works, or has ended; whether it works."""
        child = self.children[instance]

        async def works_or_ended() -> bool:
            return child.ready or child.exit_code is not None

        await until(works_or_ended, f"{instance} works", READY_S_MAX)
        return child.ready

    async def ready(self, instance: str) -> None:
        """Wait until a process works.

        Raises:
            DidNotStart: it ended before, or takes too long.
        """
        child = self.children[instance]
        if not await self.came(instance):
            why = last_reason(self.data.log(instance))
            raise DidNotStart(f"{instance} ended with {child.exit_code}: {why}")

    async def start_nats(self) -> None:
        """Start the server on its port and its data, and wait until it answers.

        Raises:
            DidNotStart: it ended, as where something else listens on its port by now.
        """
        self._forget(NATS)
        command = self.roster.nats()
        # It runs in the nursery's working directory, not in its own.
        arguments = (*command.arguments, "--store_dir", str(self.data.nats_store))
        server = self._nursery.start(arguments, command.environment, command.log)
        self.children[NATS] = server

        async def answers_or_ended() -> bool:
            return server.exit_code is not None or await nats_server.is_listening(self.roster.nats_port)

        await until(answers_or_ended, "the NATS server answers", READY_S_MAX)
        if server.exit_code is not None:
            raise DidNotStart(f"the NATS server ended with {server.exit_code}: its log is {command.log}")

    def kill(self, instance: str) -> None:
        """Signal 9, now."""
        self.children[instance].kill()

    def pause(self, instance: str) -> None:
        """Stop it where it stands (SIGSTOP): its connections stay open, and it may go on at any time."""
        self.children[instance].signal(signal.SIGSTOP)

    def go_on(self, instance: str) -> None:
        self.children[instance].signal(signal.SIGCONT)

    def ended(self) -> dict[str, int]:
        """Every process that has ended and was not started again, with its exit code."""
        codes = {name: child.exit_code for name, child in self.children.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def take(self, instance: str) -> Child:
        """Give a process away: it is no part of the mesh any more, and whoever took it ends it."""
        return self.children.pop(instance)

    def _forget(self, instance: str) -> None:
        child = self.children.pop(instance, None)
        if child is not None:
            child.stop()
            child.close()

    # ------------------------------------------------------------ ways in

    def api(self) -> Api:
        """The HTTP API, for somebody who rides out the death of a gateway."""
        return Api(self.roster.api_url, self.roster.credentials.token, retry_s=API_RETRY_S)

    @asynccontextmanager
    async def bus(self, user: str = CLI) -> AsyncIterator[Bus]:
        """A connection as one of the mesh's users."""
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
        """Lines of the logs that hold a traceback, but for what a failpoint asked for: who is killed leaves none."""
        return [
            f"{log.name}: {line}"
            for log in sorted(self.data.logs.glob("*.log*"))
            for line in log.read_text(errors="replace").splitlines()
            if ('"exception"' in line or line.startswith("Traceback")) and INJECTED not in line
        ]
