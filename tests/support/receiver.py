"""A webhook receiver on loopback: it verifies, counts, and answers as the test decides."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from standardwebhooks import Webhook

SECRET = "whsec_" + base64.b64encode(b"a secret of some length").decode()
Answer = int | tuple[int, str] | None
"""A status, perhaps with a ``Retry-After``; None: accept the request and never answer."""


@dataclass
class Receiver:
    """``answers`` gives the answer to the n-th request, counted from 1. A request with a 2xx answer is accepted."""

    answers: Callable[[int], Answer] = lambda _: 200
    requests: list[str] = field(default_factory=list)
    seen: dict[str, dict[str, Any]] = field(default_factory=dict)
    taken: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    url: str = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await self._head(reader):
                headers = dict(line.split(": ", 1) for line in head[1:])
                body = await reader.readexactly(int(headers["content-length"]))
                answer = self._take(headers, body)
                if answer is None:
                    await reader.read()
                    return
                status, wait = answer if isinstance(answer, tuple) else (answer, "")
                more = f"retry-after: {wait}\r\n" if wait else ""
                writer.write(f"HTTP/1.1 {status} X\r\n{more}content-length: 0\r\n\r\n".encode())
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _head(self, reader: asyncio.StreamReader) -> list[str]:
        try:
            raw = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return []
        lines = raw.decode().strip().split("\r\n")
        return [
            lines[0],
            *(name.lower() + ": " + value for name, _, value in (line.partition(": ") for line in lines[1:])),
        ]

    def _take(self, headers: dict[str, str], body: bytes) -> Answer:
        id_ = headers["webhook-id"]
        try:
            Webhook(SECRET).verify(body, headers)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test has to see it
            self.problems.append(f"{id_}: {error!r}")
        content = json.loads(body)
        if self.seen.setdefault(id_, content) != content:
            self.problems.append(f"{id_}: another content under the same id")
        self.requests.append(id_)
        answer = self.answers(len(self.requests))
        status = answer[0] if isinstance(answer, tuple) else answer
        if status is None or 200 <= status < 300:
            self.taken[id_] = content
        return answer


@asynccontextmanager
async def receiving(receiver: Receiver, port: int = 0) -> AsyncIterator[Receiver]:
    """Listen for the length of a ``with`` block."""
    connections: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        task.add_done_callback(connections.discard)
        await receiver.handle(reader, writer)

    server = await asyncio.start_server(handle, "127.0.0.1", port)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    try:
        yield receiver
    finally:
        server.close()
        for task in tuple(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()
