"""Services whose outer half is the simulation's: memory on a file that outlives its process, and the gateway without a socket."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anchorwatch.bus.port import Stored
from anchorwatch.service.context import ServiceContext
from anchorwatch_gateway.app import guarded, make
from anchorwatch_gateway.parts import assemble
from anchorwatch_memory import main as memory
from anchorwatch_memory.projections import InlineProjections, Query, T
from anchorwatch_memory.store import Position
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Scope

TOKEN = "whole-mesh"
STATUS_OK = 300

_idle: list[FastAPI] = []
"""Routes of gateways that have ended: to make them anew would cost more than all the rest of a run."""


class NoConnection(Exception):
    """The gateway is not there, or the connection to it ended before the answer."""


class Disk:
    """Memory's file: what a process has written is there for the next one."""

    def __init__(self) -> None:
        self.projections = InlineProjections()

    async def run(self, context: ServiceContext) -> None:
        """The memory service's ``run``, on this file."""
        await memory.run_on(context, OpenFile(self.projections))


class OpenFile:
    """The file, opened by one process: closing it leaves it where it is."""

    def __init__(self, file: InlineProjections) -> None:
        self._file = file

    async def position(self) -> Position:
        return await self._file.position()

    async def project(self, messages: Sequence[Stored]) -> Position:
        return await self._file.project(messages)

    async def read(self, query: Query[T]) -> tuple[T, int]:
        return await self._file.read(query)

    async def reset(self, aside: str = "") -> None:
        await self._file.reset(aside)

    async def close(self) -> None:
        pass


@dataclass(frozen=True)
class Answer:
    """An HTTP answer."""

    status: int
    body: Any

    @property
    def ok(self) -> bool:
        return self.status < STATUS_OK


class Front:
    """Where clients find the gateways that are up."""

    def __init__(self) -> None:
        self._apps: dict[str, tuple[ServiceContext, ASGIApp, contextvars.Context]] = {}

    async def run(self, context: ServiceContext) -> None:
        """The gateway's ``run``, but for its socket."""
        parts = await assemble(context)
        routes = _idle.pop() if _idle else make(context.log)
        app = guarded(routes, parts)
        self._apps[context.identity.instance] = (context, app, contextvars.copy_context())
        context.ready.set()
        try:
            await context.stopping.wait()
        finally:
            _idle.append(routes)

    async def ask(
        self, instance: str, method: str, path: str, body: Any = None, key: str | None = None
    ) -> Answer:
        """One request to one gateway.

        Raises:
            NoConnection: nobody knows what became of it.
        """
        found = self._apps.get(instance)
        if found is None or not found[0].bus.connected:
            raise NoConnection
        _, app, scope = found
        exchange = _Exchange(method, path, body, key)
        task = asyncio.get_running_loop().create_task(exchange.pass_through(app), context=scope.copy())
        await asyncio.wait({task})
        if task.cancelled() or not found[0].bus.connected:
            raise NoConnection
        task.result()
        return Answer(exchange.status, json.loads(exchange.answer or b"null"))


class _Exchange:
    """One request and its answer, as ASGI has it."""

    def __init__(self, method: str, path: str, body: Any, key: str | None) -> None:
        self._body = b"" if body is None else json.dumps(body).encode()
        headers = [
            (b"authorization", f"Bearer {TOKEN}".encode()),
            (b"content-length", str(len(self._body)).encode()),
        ]
        if key is not None:
            headers.append((b"idempotency-key", key.encode()))
        self.scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "server": ("gateway", 80),
            "client": ("client", 1),
        }
        self.status = 0
        self.answer = b""

    async def pass_through(self, app: ASGIApp) -> None:
        await app(self.scope, self.receive, self.send)

    async def receive(self) -> Message:
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.answer += message.get("body", b"")
