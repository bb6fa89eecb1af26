"""The two worlds in which the suite runs: the simulated bus and a real server.

A test is written once, for `World`. It uses unique names for its streams (`World.stream`, `World.subject`), because the
tests of a session share the real server. Only `World.advance` lets time pass: virtual in the simulation, real on the
server, so windows in tests are short (0.5-3 s). A test waits for events by the bus's own calls (`Consumer.fetch`) or by
`World.until`.

A busy machine may pause a test for a second or two at any line. So a test proves "not yet" by the time of the later
event, never by a look in time; and a step within a window has seconds for it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import ClassVar

from anchorwatch.bus.port import Bus, ConsumerSpec, Message
from anchorwatch.topology.streams import StreamSpec

from tests.support.nats_server import NatsServer, User

ADMIN = User("admin", "admin-password")
# May publish below `*.allowed.` only, and subscribe to its own inbox only.
RESTRICTED = User(
    "restricted", "restricted-password", publish=("*.allowed.>",), subscribe=("_INBOX.restricted.>",)
)
USERS = (ADMIN, RESTRICTED)

PLAIN = os.environ.get("ANCHORWATCH_NATS_CLIENT") == "plain"
"""Whether the real bus uses nats-py without the fast path."""
POLL_S = 0.02
_tests = itertools.count(1)


class World(ABC):
    """The environment of a test."""

    kind: ClassVar[str]
    at_once_s: ClassVar[float]
    """The limit for an event that waits for nothing, also on a busy machine with a real server."""

    def __init__(self) -> None:
        self._prefix = f"t{next(_tests)}"
        self._buses: list[Bus] = []

    def stream(self, name: str = "S") -> str:
        """A unique name of a stream, bucket or store."""
        return f"{self._prefix}_{name}"

    def subject(self, rest: str) -> str:
        """A subject below this test's unique first token."""
        return f"{self._prefix}.{rest}"

    async def connect(self, user: User = ADMIN) -> Bus:
        """A connected bus, closed at the end of the test."""
        bus = await self._connect(user)
        self._buses.append(bus)
        return bus

    async def close(self) -> None:
        for bus in reversed(self._buses):
            await bus.close()

    async def until(self, condition: Callable[[], Awaitable[bool]], within_s: float = 30.0) -> None:
        """Wait until ``condition`` holds.

        Raises:
            AssertionError: it does not hold within ``within_s``.
        """
        for _ in range(int(within_s / POLL_S)):
            if await condition():
                return
            await self.advance(POLL_S)
        raise AssertionError(f"did not hold within {within_s} s")

    @abstractmethod
    async def _connect(self, user: User) -> Bus: ...

    @abstractmethod
    async def advance(self, seconds: float) -> None:
        """Let time pass."""

    @abstractmethod
    def now_ms(self) -> int:
        """The server's time in Unix milliseconds."""

    # Helpers.

    async def make_stream(self, bus: Bus, name: str = "S", **options: object) -> str:
        """A stream on ``<prefix>.<name in lower case>.>``; returns its name."""
        subjects = options.pop("subjects", (self.subject(f"{name.lower()}.>"),))
        spec = StreamSpec(name=self.stream(name), subjects=subjects, **options)  # type: ignore[arg-type]  # its own fields
        await bus.ensure_stream(spec)
        return spec.name


class NatsWorld(World):
    """A real server."""

    kind = "nats"
    at_once_s = 30.0

    def __init__(self, server: NatsServer) -> None:
        super().__init__()
        self._server = server

    async def _connect(self, user: User) -> Bus:
        from anchorwatch.bus import jetstream  # noqa: PLC0415 - the simulation's tests run without nats-py

        return await jetstream.connect(
            self._server.url,
            user=user.name,
            password=user.password,
            name="conformance",
            inbox=f"_INBOX.{user.name}",
            # .ci/nats-py runs the suite on both clients.
            plain=PLAIN,
        )

    async def advance(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class SimWorld(World):
    """The simulated bus. Each test has its own simulation."""

    kind = "sim"
    at_once_s = 1.0

    def __init__(self) -> None:
        super().__init__()
        from anchorwatch.testing.bus import SimServer, SimUser  # noqa: PLC0415 - the server's tests run without it

        self._server = SimServer(users=[SimUser(user.name, user.publish, user.subscribe) for user in USERS])

    async def _connect(self, user: User) -> Bus:
        return self._server.connect(user.name)

    async def advance(self, seconds: float) -> None:
        await self._server.advance(seconds)

    def now_ms(self) -> int:
        return self._server.now_ms()


__all__ = ["ADMIN", "RESTRICTED", "USERS", "ConsumerSpec", "Message", "NatsWorld", "SimWorld", "World"]
