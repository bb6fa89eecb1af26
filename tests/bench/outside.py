"""The outside world of a bench, in the bench's own process: a sink of effects and a receiver of notifications.

Both count, independently of the journal. The sink honours effect keys; it can hold an answer back, so that a worker
dies after its effect and before its record.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any


class Sink:
    """Takes effect keys, a line each, on a unix socket; answers ``fresh`` or ``again``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.requests: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()
        self._hold: asyncio.Future[None] | None = None
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def hold(self) -> asyncio.Future[None]:
        """Do the next effect and never answer; done when that has happened."""
        self._hold = asyncio.get_running_loop().create_future()
        return self._hold

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                name, _, key = line.decode().strip().partition(" ")
                self.requests[key] += 1
                if self.requests[key] == 1:
                    # What is counted is the thing that was to be done, whatever key it was done under.
                    self.effects[name] += 1
                if self._hold is not None:
                    self._hold.set_result(None)
                    self._hold = None
                    await reader.read()
                    break
                writer.write(b"fresh\n" if self.requests[key] == 1 else b"again\n")
        writer.close()


class Receiver:
    """Takes notifications: lines on a unix socket (from the floor), HTTP posts (from the notifier)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.deliveries: Counter[str] = Counter()
        self.url = ""
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._servers: list[asyncio.Server] = []

    async def open(self) -> None:
        self._servers.append(await asyncio.start_unix_server(self._lines, self.path))
        server = await asyncio.start_server(self._http, "127.0.0.1", 0)
        self._servers.append(server)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"

    async def close(self) -> None:
        for server in self._servers:
            server.close()

    def expect(self, name: str) -> asyncio.Future[None]:
        """Done when the notification ``name`` (``<session>/<turn>``) has arrived."""
        self._waiting[name] = asyncio.get_running_loop().create_future()
        return self._waiting[name]

    def received(self, name: str) -> None:
        self.deliveries[name] += 1
        waiting = self._waiting.pop(name, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def _lines(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            self.received(line.decode().strip())
        writer.close()

    async def _http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_content_length(head))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                name = turn_name(json.loads(body))
                if name is not None:
                    self.received(name)
        writer.close()


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def turn_name(webhook: Any) -> str | None:
    """``<session>/<turn>`` of a webhook that tells of a turn's end; None of any other."""
    data = webhook["data"]
    return f"{data['session']}/{data['run']}" if "turn_ended" in data["kinds"] else None
