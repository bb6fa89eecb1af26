"""What a bench runs on: a real NATS server, worker processes, the outside world, and a client that publishes events."""

from __future__ import annotations

import asyncio
import base64
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext

from tests.bench.outside import Receiver, Sink
from tests.bench.processes import Process, cpu_s
from tests.support.nats_server import NatsServer

PAYLOAD_BYTES = 512
TURN_S_MAX = 30.0
LOG_CHARS = 1_000
# Random bytes, so that nothing between here and the disk can make them smaller.
_RANDOM_BYTES = PAYLOAD_BYTES * 3 // 4


def payload_text() -> str:
    """512 characters that do not compress below 384 bytes."""
    return base64.b64encode(os.urandom(_RANDOM_BYTES)).decode()


@dataclass(frozen=True)
class Usage:
    """What has been used so far. ``messages`` and ``bytes`` by stream; ``cpu_s`` by process.

    ``packed``: what the full blocks of a stream take on disk, of the bytes stored in them, now; 1 while there is none.
    """

    messages: Mapping[str, int]
    bytes: Mapping[str, int]
    cpu_s: Mapping[str, float]
    packed: Mapping[str, float]

    def since(self, before: Usage) -> Usage:
        return Usage(
            {name: count - before.messages.get(name, 0) for name, count in self.messages.items()},
            {name: count - before.bytes.get(name, 0) for name, count in self.bytes.items()},
            {name: used - before.cpu_s.get(name, 0.0) for name, used in self.cpu_s.items()},
            self.packed,
        )

    def plus(self, more: Usage) -> Usage:
        return Usage(
            {name: count + self.messages.get(name, 0) for name, count in more.messages.items()},
            {name: count + self.bytes.get(name, 0) for name, count in more.bytes.items()},
            {name: used + self.cpu_s.get(name, 0.0) for name, used in more.cpu_s.items()},
            more.packed,
        )


class Scene:
    """Everything of one run. A subclass makes the streams and the workers, and says what an event looks like."""

    name = ""

    def __init__(self, directory: Path, *, fsync: bool) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.server = NatsServer(directory / "nats", sync_always=fsync)
        self.sink = Sink(directory / "sink")
        self.receiver = Receiver(directory / "receiver")
        self.processes: list[Process] = []
        self.wakes = 0
        self._turns: Counter[str] = Counter()
        self._client = Client()

    async def __aenter__(self) -> Self:
        await self.sink.open()
        await self.receiver.open()
        await asyncio.to_thread(self.server.start)
        self._client = await nats.connect(self.server.url)
        try:
            await self.prepare()
            self.processes = list(self.workers())
            await asyncio.gather(*(process.start() for process in self.processes))
            await self.settle()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        for process in self.processes:
            await asyncio.to_thread(process.stop)
        await self.unprepare()
        await self._client.close()
        await asyncio.to_thread(self.server.kill9)
        await self.sink.close()
        await self.receiver.close()

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

    @property
    def js(self) -> JetStreamContext:
        return self._client.jetstream()

    def process(self, name: str) -> Process:
        return next(process for process in self.processes if process.name == name)

    def expect_turn(self, session: str) -> asyncio.Future[None]:
        """Done when the notification of the session's next turn has arrived."""
        self.wakes += 1
        self._turns[session] += 1
        return self.receiver.expect(f"{session}/{self._turns[session]}")

    async def turn(self, session: str) -> None:
        """Have an event durably accepted, and wait until its turn's notification has arrived.

        Raises:
            TimeoutError: it did not, and what the workers' logs say.
        """
        arrived = self.expect_turn(session)
        subject, payload = self.event(session, self._turns[session])
        try:
            async with asyncio.timeout(TURN_S_MAX):
                await self.js.publish(subject, payload)
                await arrived
        except TimeoutError:
            raise TimeoutError(f"no turn {self._turns[session]} of {session}\n{self.logs()}") from None

    def logs(self) -> str:
        """The last that each worker said."""
        return "\n".join(f"{each.name}: {each.log.read_text()[-LOG_CHARS:]}" for each in self.processes)

    async def usage(self) -> Usage:
        """What has been used up to now."""
        infos = await self.js.streams_info()
        states = {str(info.config.name): info.state for info in infos}
        processes = {process.name: process.cpu_s() for process in self.processes}
        assert self.server.process is not None
        return Usage(
            # Also of streams that drop old messages, every one that was stored.
            messages={name: state.last_seq for name, state in states.items()},
            bytes={name: state.bytes for name, state in states.items()},
            cpu_s={**processes, "nats-server": cpu_s(self.server.process.pid), "bench": cpu_s(os.getpid())},
            packed={name: self._packed(name, state.bytes) for name, state in states.items()},
        )

    def _packed(self, stream: str, stored_bytes: int) -> float:
        """The server compresses a block when it is full, so the newest one says nothing."""
        blocks = (self.server.directory / "store").rglob(f"{stream}/msgs/*.blk")
        sizes = [path.stat().st_size for path in sorted(blocks, key=lambda path: int(path.stem))]
        full_bytes = stored_bytes - (sizes[-1] if sizes else 0)
        return sum(sizes[:-1]) / full_bytes if len(sizes) > 1 and full_bytes > 0 else 1.0
