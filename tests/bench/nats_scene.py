"""A scene on a real NATS server, and a client that publishes events to it."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext

from tests.bench.processes import Process, cpu_s
from tests.bench.scene import TURN_S_MAX, Scene, Usage
from tests.support.nats_server import NatsServer


class NatsScene(Scene):
    """A subclass makes the streams and the workers, and says what an event looks like."""

    def __init__(self, directory: Path, *, fsync: bool) -> None:
        super().__init__(directory)
        self.server = NatsServer(directory / "nats", sync_always=fsync, more='http: "127.0.0.1:-1"')
        self._client = Client()

    async def open(self) -> None:
        await asyncio.to_thread(self.server.start)
        self._client = await nats.connect(self.server.url)
        await self.prepare()
        self.processes = list(self.workers())
        await asyncio.gather(*(process.start() for process in self.processes))
        await self.settle()

    async def close(self) -> None:
        await self.unprepare()
        await self._client.close()
        await asyncio.to_thread(self.server.kill9)

    async def prepare(self) -> None:
        """Make the streams, and what else must be there before the workers start."""

    async def unprepare(self) -> None:
        """Let go of what `prepare` made."""

    async def settle(self) -> None:
        """Wait until nothing goes on any more but what is measured."""

    def workers(self) -> Sequence[Process]:
        raise NotImplementedError

    def event(self, session: str, turn: int) -> tuple[str, bytes]:
        """(subject, payload) of the event that causes a session's turn."""
        raise NotImplementedError

    async def publish(self, session: str, turn: int) -> None:
        subject, payload = self.event(session, turn)
        # The client's own patience is shorter: a disk that takes its time for a sync is measured, and ends nothing.
        await self.js.publish(subject, payload, timeout=TURN_S_MAX)

    @property
    def js(self) -> JetStreamContext:
        return self._client.jetstream()

    async def usage(self) -> Usage:
        infos = await self.js.streams_info()
        states = {str(info.config.name): info.state for info in infos}
        assert self.server.process is not None
        return Usage(
            # Also of streams that drop old messages, every one that was stored.
            messages={name: state.last_seq for name, state in states.items()},
            bytes={name: state.bytes for name, state in states.items()},
            cpu_s={**self.cpu_s(), "nats-server": cpu_s(self.server.process.pid)},
            packed={name: self._packed(name, state.bytes) for name, state in states.items()},
            wire=await asyncio.to_thread(self._wire),
        )

    def _wire(self) -> Counter[str]:
        """Messages to and from each worker, as the server counts them."""
        ports = json.loads(next(self.server.directory.glob("*.ports")).read_text())
        with urllib.request.urlopen(f"{ports['monitoring'][0]}/connz") as answer:  # noqa: S310 - http, on loopback
            connections = json.loads(answer.read())["connections"]
        passed: Counter[str] = Counter()
        for each in connections:
            passed[each.get("name", "")] += each["in_msgs"] + each["out_msgs"]
        return passed

    def _packed(self, stream: str, stored_bytes: int) -> float:
        """The server compresses a block when it is full, so the newest one says nothing."""
        blocks = (self.server.directory / "store").rglob(f"{stream}/msgs/*.blk")
        sizes = [path.stat().st_size for path in sorted(blocks, key=lambda path: int(path.stem))]
        full_bytes = stored_bytes - (sizes[-1] if sizes else 0)
        return sum(sizes[:-1]) / full_bytes if len(sizes) > 1 and full_bytes > 0 else 1.0
