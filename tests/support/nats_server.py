"""Real NATS servers for tests: started from the binary in the environment, and killed after the test.

Each has free ports and its own directory, and listens on loopback only.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anchorwatch.mesh.ports import any_free

from tests.support.waiting import is_stopped, until

READY_S_MAX = 60.0
STOP_S_MAX = 60.0
POLL_S = 0.01


@dataclass(frozen=True)
class User:
    """A user of the server. ``publish`` and ``subscribe`` are allow lists of subjects; None allows everything."""

    name: str
    password: str
    publish: tuple[str, ...] | None = None
    subscribe: tuple[str, ...] | None = None


def server_binary() -> str:
    """The path of ``nats-server``, from the environment that runs the tests.

    Raises:
        FileNotFoundError: it is not installed.
    """
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise FileNotFoundError("nats-server is not installed: run `make setup`")
    return found


def free_ports(count: int) -> list[int]:
    """Ports on loopback that were free at the call."""
    chosen: list[int] = []
    while len(chosen) < count:
        chosen.append(any_free(excluded=set(chosen)))
    return chosen


@dataclass
class NatsServer:
    """One server. ``restart`` and ``kill9`` keep its port and data. ``cluster``, ``more``: lines of its configuration.

    ``port`` -1: a port that the system assigns to no outgoing connection, which could take it while the server is down.
    """

    directory: Path
    users: Sequence[User] = ()
    name: str = "test"
    sync_always: bool = True
    max_payload_bytes: int = 1024 * 1024
    port: int = -1
    cluster: str = ""
    more: str = ""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def log_text(self) -> str:
        return (self.directory / "server.log").read_text(errors="replace")

    def launch(self) -> None:
        """Start the process without waiting for it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.port < 0:
            self.port = any_free()
        for stale in self.directory.glob("*.ports"):
            stale.unlink()
        config = self.directory / "server.conf"
        config.write_text(self._config())
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen([server_binary(), "-c", str(config)], stdout=log, stderr=log)

    def wait_ready(self) -> None:
        """Wait until clients can connect.

        Raises:
            RuntimeError: it ended, or took longer than `READY_S_MAX`.
        """
        deadline = time.monotonic() + READY_S_MAX
        while time.monotonic() < deadline:
            if self.process is None or self.process.poll() is not None:
                break
            with contextlib.suppress(OSError, ValueError, StopIteration, KeyError, IndexError):
                ports = json.loads(next(self.directory.glob("*.ports")).read_text())
                self.port = int(ports["nats"][0].rsplit(":", 1)[1])
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as link:
                    if link.recv(4) == b"INFO":
                        return
            time.sleep(POLL_S)
        self.kill9()
        raise RuntimeError(f"nats-server did not start:\n{self.log_text[-2000:]}")

    def start(self) -> NatsServer:
        self.launch()
        self.wait_ready()
        return self

    def kill9(self) -> None:
        """Kill it as a crash would; its data stays unchanged."""
        if self.process is not None:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGCONT)
                self.process.kill()
            self.process.wait(STOP_S_MAX)
            self.process = None

    def stop(self) -> None:
        """Stop it in order."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(STOP_S_MAX)
            self.process = None

    def restart(self) -> None:
        """Kill it if it runs, and start it again with the same port and data."""
        self.kill9()
        self.start()

    def reload(self, users: Sequence[User]) -> None:
        """Reload the running server with other users."""
        self.users = users
        (self.directory / "server.conf").write_text(self._config())
        if self.process is not None:
            self.process.send_signal(signal.SIGHUP)

    def pause(self) -> None:
        """Stop the process (SIGSTOP): connections stay open without answers."""
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGSTOP)
            # On a busy machine it runs for a moment longer.
            pid = self.process.pid
            until(lambda: is_stopped(pid))

    def resume(self) -> None:
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGCONT)

    def _config(self) -> str:
        sync = "sync_interval: always" if self.sync_always else ""
        users = (
            f"authorization {{ users: [ {', '.join(map(_user_config, self.users))} ] }}" if self.users else ""
        )
        return f"""
            server_name: {json.dumps(self.name)}
            listen: "127.0.0.1:{self.port}"
            ports_file_dir: {json.dumps(str(self.directory))}
            max_payload: {self.max_payload_bytes}
            jetstream {{ store_dir: {json.dumps(str(self.directory / "store"))}, {sync} }}
            {users}
            {self.cluster}
            {self.more}
        """


def _user_config(user: User) -> str:
    permissions = {
        verb: {"allow": list(subjects)}
        for verb, subjects in (("publish", user.publish), ("subscribe", user.subscribe))
        if subjects is not None
    }
    # NATS reads JSON as a configuration value.
    return json.dumps({"user": user.name, "password": user.password, "permissions": permissions})


@contextlib.contextmanager
def running_server(directory: Path, users: Sequence[User] = (), **options: object) -> Iterator[NatsServer]:
    """A server for the length of a ``with`` block."""
    server = NatsServer(directory, users, **options)  # type: ignore[arg-type]  # the dataclass's own fields
    try:
        yield server.start()
    finally:
        server.kill9()


@dataclass
class Cluster:
    """Three servers that replicate to each other."""

    servers: list[NatsServer]

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    def named(self, name: str) -> NatsServer:
        """The server with this name, as in ``cluster.leader`` of a stream's info."""
        return next(server for server in self.servers if server.name == name)

    def kill9(self) -> None:
        for server in self.servers:
            server.kill9()


def start_cluster(directory: Path, users: Sequence[User] = (), size: int = 3) -> Cluster:
    """Start a cluster and wait until each node serves clients (the election of its leader may be in progress)."""
    ports = free_ports(2 * size)
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports[size:])
    servers = [
        NatsServer(
            directory / f"n{index}",
            users,
            name=f"n{index}",
            port=ports[index],
            cluster=f'cluster {{ name: test, listen: "127.0.0.1:{ports[size + index]}", routes: [{routes}] }}',
        )
        for index in range(size)
    ]
    cluster = Cluster(servers)
    try:
        for server in servers:
            server.launch()
        for server in servers:
            server.wait_ready()
    except BaseException:
        cluster.kill9()
        raise
    return cluster


@contextlib.contextmanager
def running_cluster(directory: Path, users: Sequence[User] = ()) -> Iterator[Cluster]:
    """A cluster for the length of a ``with`` block."""
    cluster = start_cluster(directory, users)
    try:
        yield cluster
    finally:
        cluster.kill9()
