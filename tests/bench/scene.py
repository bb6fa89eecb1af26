"""What a bench runs on: worker processes and the outside world, whatever carries the messages between them."""

from __future__ import annotations

import asyncio
import base64
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.bench.outside import Receiver, Sink
from tests.bench.processes import Process, cpu_s

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

    ``wire``: messages that passed between the server and each process, both ways together.
    ``packed``: what the full blocks of a stream take on disk, of the bytes stored in them, now; 1 while there is none.
    """

    messages: Mapping[str, int]
    bytes: Mapping[str, int]
    cpu_s: Mapping[str, float]
    packed: Mapping[str, float]
    wire: Mapping[str, int] = field(default_factory=dict)

    def since(self, before: Usage) -> Usage:
        return Usage(
            {name: count - before.messages.get(name, 0) for name, count in self.messages.items()},
            {name: count - before.bytes.get(name, 0) for name, count in self.bytes.items()},
            {name: used - before.cpu_s.get(name, 0.0) for name, used in self.cpu_s.items()},
            self.packed,
            {name: count - before.wire.get(name, 0) for name, count in self.wire.items()},
        )

    def plus(self, more: Usage) -> Usage:
        return Usage(
            {name: count + self.messages.get(name, 0) for name, count in more.messages.items()},
            {name: count + self.bytes.get(name, 0) for name, count in more.bytes.items()},
            {name: used + self.cpu_s.get(name, 0.0) for name, used in more.cpu_s.items()},
            more.packed,
            {name: count + self.wire.get(name, 0) for name, count in more.wire.items()},
        )


class Scene:
    """Everything of one run. A subclass brings the server and the workers, and knows how an event gets in."""

    name = ""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.sink = Sink(directory / "sink")
        self.receiver = Receiver(directory / "receiver")
        self.processes: list[Process] = []
        self.wakes = 0
        self._turns: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        await self.sink.open()
        await self.receiver.open()
        try:
            await self.open()
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
        await self.close()
        await self.sink.close()
        await self.receiver.close()

    async def open(self) -> None:
        """Start the server and the workers, and wait until nothing goes on any more but what is measured."""
        raise NotImplementedError

    async def close(self) -> None:
        """End the server. The workers have been stopped."""
        raise NotImplementedError

    async def publish(self, session: str, turn: int) -> None:
        """Have the event that causes a session's turn durably accepted."""
        raise NotImplementedError

    async def usage(self) -> Usage:
        """What has been used up to now."""
        raise NotImplementedError

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
            TimeoutError: it did not, and how far it came, and what the workers' logs say.
        """
        arrived, missing = self.expect_turn(session), "an event was not accepted for"
        try:
            async with asyncio.timeout(TURN_S_MAX):
                await self.publish(session, self._turns[session])
                missing = "no notification of"
                await arrived
        except TimeoutError:
            raise TimeoutError(f"{missing} turn {self._turns[session]} of {session}\n{self.logs()}") from None

    def logs(self) -> str:
        """The last that each worker said."""
        return "\n".join(f"{each.name}: {each.log.read_text()[-LOG_CHARS:]}" for each in self.processes)

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds of the workers, and of the bench itself, which is the outside world."""
        used = {process.name: process.cpu_s() for process in self.processes}
        return {**used, "bench": cpu_s(os.getpid())}
