"""Restate's server, its write-ahead log synced at each commit as it is by default; the workers; and the events that go in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from tests.bench.http_client import HttpClient
from tests.bench.processes import Process, cpu_s
from tests.bench.restate.had import Restate
from tests.bench.scene import Scene, Usage, payload_text
from tests.support.nats_server import free_ports

READY_S_MAX = 60.0
POLL_S = 0.1
ROLES = ("agent", "notifier")
LOOPBACK = "127.0.0.1"
GOOD = frozenset({200, 201, 202})


class RestateScene(Scene):
    """A virtual object for each session, and a service that notifies."""

    name = "restate"

    def __init__(self, directory: Path, restate: Restate) -> None:
        super().__init__(directory)
        self._restate = restate
        self._ingress, self._admin, self._node, *self._ports = free_ports(3 + len(ROLES))
        self._client = HttpClient(LOOPBACK, self._ingress)
        self._server: subprocess.Popen[bytes] | None = None

    async def open(self) -> None:
        self._server = self._launch()
        admin = HttpClient(LOOPBACK, self._admin)
        try:
            await self._ready(admin)
            sockets = (self.sink.path, self.receiver.path)
            for role, port, socket in zip(ROLES, self._ports, sockets, strict=True):
                arguments = ("tests.bench.restate.worker", role, str(port), str(socket))
                self.processes.append(Process(role, arguments, {}, self.directory, self._restate.python))
                await self.processes[-1].start()
                await self._register(admin, port)
        finally:
            await admin.close()

    def _launch(self) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "RESTATE_INGRESS__BIND_ADDRESS": f"{LOOPBACK}:{self._ingress}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"{LOOPBACK}:{self._admin}",
            "RESTATE_BIND_ADDRESS": f"{LOOPBACK}:{self._node}",
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_LOG_FILTER": "warn",
            "DO_NOT_TRACK": "1",
        }
        command = (self._restate.server, "--no-logo", "--base-dir", str(self.directory / "data"))
        with (self.directory / "server.log").open("ab") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    async def _ready(self, admin: HttpClient) -> None:
        for client, path in ((admin, "/health"), (self._client, "/restate/health")):
            await self._until(partial(client.get, path))

    async def _register(self, admin: HttpClient, port: int) -> None:
        """Tell the server of a worker, which listens in a moment."""
        body = json.dumps({"uri": f"http://{LOOPBACK}:{port}"}).encode()
        await self._until(partial(admin.post, "/deployments", body))

    async def _until(self, ask: Callable[[], Awaitable[int]]) -> None:
        """Ask until the answer is that it went well."""
        async with asyncio.timeout(READY_S_MAX):
            while True:
                with contextlib.suppress(OSError):
                    if await ask() in GOOD:
                        return
                await asyncio.sleep(POLL_S)

    async def close(self) -> None:
        await self._client.close()
        if self._server is not None:
            self._server.kill()
            await asyncio.to_thread(self._server.wait)

    async def publish(self, session: str, turn: int) -> None:
        del turn
        body = json.dumps({"content": payload_text()}).encode()
        status = await self._client.post(f"/Agent/{session}/turn/send", body)
        if status not in GOOD:
            raise RuntimeError(f"the ingress answered {status}\n{self.logs()}")

    async def usage(self) -> Usage:
        assert self._server is not None
        files = [path for path in (self.directory / "data").rglob("*") if path.is_file()]
        return Usage(
            messages={},
            bytes={"restate": sum(path.stat().st_size for path in files)},
            cpu_s={**self.cpu_s(), "restate-server": cpu_s(self._server.pid)},
            packed={},
        )
