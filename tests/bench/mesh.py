"""The mesh: the real services as processes of their own, on streams, sessions and agents as they always are."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from anchorwatch.bus import jetstream
from anchorwatch.bus.port import Bus
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Create
from anchorwatch.core.session.decide import decide
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.provisioning import ensure_topology
from anchorwatch.topology import subjects
from anchorwatch.topology.streams import journal_stream

from tests.bench.nats_scene import NatsScene
from tests.bench.pack import PACK, agent_of
from tests.bench.processes import Process
from tests.bench.scene import payload_text

WORKSPACE = "default"
SERVICES = ("observer", "planner", "executor", "notifier")
AT_ONCE = 16
FIRST_TURNS_S_MAX = 60.0


class Mesh(NatsScene):
    """Four services. Every session has an agent of its own, so that an event wakes it alone."""

    name = "mesh"

    def __init__(
        self, directory: Path, sessions: Sequence[str], *, fsync: bool, services: Sequence[str] = SERVICES
    ) -> None:
        super().__init__(directory, fsync=fsync)
        self._sessions = sessions
        self._services = services
        self._bus: Bus | None = None
        self._first: list[asyncio.Future[None]] = []

    @property
    def bus(self) -> Bus:
        assert self._bus is not None
        return self._bus

    async def prepare(self) -> None:
        self._bus = await jetstream.connect(self.server.url, user=None, password=None, name="bench")
        await ensure_topology(self.bus)
        directory = await AgentDirectory.open(self.bus, lambda _: PACK)
        journal = SessionJournal(self.bus, Committer(self.bus, journal_stream()), "bench")
        slots = asyncio.Semaphore(AT_ONCE)

        async def make(session: str) -> None:
            async with slots:
                agent = await directory.apply(WORKSPACE, agent_of(session, str(self.sink.path)))
                ref, now_ms = SessionRef(WORKSPACE, session), time.time_ns() // 1_000_000
                create = Create(ref, agent.at_version, (), (), now_ms, "bench")
                await journal.append(ref, SessionState(), decide(SessionState(), create), now_ms)
                await directory.bind(ref, agent.name)

        # A new session looks at once, without any event.
        self._first = [self.expect_turn(session) for session in self._sessions]
        async with asyncio.TaskGroup() as tasks:
            for session in self._sessions:
                tasks.create_task(make(session))

    async def settle(self) -> None:
        """Let every session have its first turn."""
        try:
            async with asyncio.timeout(FIRST_TURNS_S_MAX):
                await asyncio.gather(*self._first)
        except TimeoutError:
            raise TimeoutError(f"no first turns\n{self.logs()}") from None

    async def unprepare(self) -> None:
        if self._bus is not None:
            await self._bus.close()

    def workers(self) -> Sequence[Process]:
        notify = self.directory / "notify.toml"
        notify.write_text(notify_toml(self.receiver.url))
        environment = {
            "ANCHORWATCH_NATS_URL": self.server.url,
            "ANCHORWATCH_DEBOUNCE_P0_S": "0",
            "ANCHORWATCH_DEBOUNCE_P1_S": "0",
            "ANCHORWATCH_PROBE_INTERVAL_S": "3600",
            # A session that looks by itself has a turn that nobody waits for and no wake of the bench's explains.
            "ANCHORWATCH_HEARTBEAT_S": "86400",
            "ANCHORWATCH_NOTIFY": str(notify),
            "ANCHORWATCH_LOG_LEVEL": "warning",
        }
        return [
            Process(
                name,
                ("tests.bench.serve", name),
                {**environment, "ANCHORWATCH_INSTANCE": f"{name}-1"},
                self.directory,
            )
            for name in self._services
        ]

    def event(self, session: str, turn: int) -> tuple[str, bytes]:
        del turn
        return subjects.event(WORKSPACE, "bench", session), f'{{"content": "{payload_text()}"}}'.encode()

    async def load_ms(self, session: str) -> float:
        """How long it takes to load a session of which nothing is known yet."""
        journal = SessionJournal(self.bus, Committer(self.bus, journal_stream()), "bench")
        begun = time.monotonic()
        await journal.load(SessionRef(WORKSPACE, session), 0)
        return (time.monotonic() - begun) * 1000


def notify_toml(url: str) -> str:
    """Who is told of what: the receiver, of every turn that ended."""
    secret = "whsec_" + base64.b64encode(os.urandom(32)).decode()
    channel = {"name": "bench", "kind": "webhook", "on": ["turn_ended"], "url": url, "secret": secret}
    # A string or a list of strings reads the same in TOML as in JSON.
    return "[[channel]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in channel.items())
