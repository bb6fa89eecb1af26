"""A whole mesh under test: real processes, a real NATS server; and what a test does to it and sees of it from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
from anchorwatch.bus.jetstream import connect
from anchorwatch.bus.port import Bus
from anchorwatch.cli.api import Api
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.history import History
from anchorwatch.mesh.credentials import CLI, SERVICES, pack_services
from anchorwatch.service.connect import inbox
from anchorwatch.testing.demo.stage import Stage
from anchorwatch.testing.live import Follower, until
from anchorwatch_fleet import cli, default_agent
from anchorwatch_fleet.client import YardClient
from anchorwatch_fleet.instances import Instance
from nats.aio.client import Client

WORKSPACE = "default"
WITHIN_S = 90.0
NO_FIRST_START = ("--bare", *(word for name in (*SERVICES, *pack_services()) for word in ("--only", name)))
"""With the yard, and without the agent, session and turn that a first start makes."""
QUIET = {
    # Nothing wakes a session by itself: what a test sees, it has caused.
    "ANCHORWATCH_HEARTBEAT_S": "3600",
    "ANCHORWATCH_PROBE_INTERVAL_S": "3600",
    "ANCHORWATCH_DEBOUNCE_P0_S": "0.2",
    "ANCHORWATCH_DEBOUNCE_P1_S": "0.5",
}


@dataclass
class LiveMesh(Stage):
    """One mesh. Its data stay when it is killed, and `up` goes on from them."""

    starts: tuple[str, ...] = ()

    def start(self) -> None:
        """`up`, with the arguments of this mesh."""
        self.up(*self.starts)

    # ------------------------------------------------------------ ways in

    @property
    def api(self) -> Api:
        """As `with mesh.api as api`."""
        return Api(self.mesh.api_url, self.mesh.token)

    def run(self, *words: str) -> str:
        """Run a verb of the command line against this mesh; what it prints."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "anchorwatch.cli.main", *words, "--data-dir", str(self.data.root)],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr or done.stdout
        return done.stdout

    def secret(self, user: str) -> str:
        return str(json.loads(self.data.credentials.read_text())["users"][user])

    @asynccontextmanager
    async def bus(self) -> AsyncIterator[Bus]:
        """A connection as the user ``cli``."""
        bus = await connect(
            self.mesh.nats_url, user=CLI, password=self.secret(CLI), name="e2e", inbox=inbox(CLI)
        )
        try:
            yield bus
        finally:
            await bus.close()

    @asynccontextmanager
    async def plain(self, user: str | None = None) -> AsyncIterator[Client]:
        """A NATS client that knows nothing of Anchor Watch: as the publisher of mesh.json, or as another user."""
        mesh = self.mesh
        name = user or mesh.publisher_user
        password = self.secret(user) if user else mesh.publisher_password
        client = await nats.connect(mesh.nats_url, user=name, password=password)
        try:
            yield client
        finally:
            await client.close()

    # ------------------------------------------------------------ harm

    def kill(self, service: str, instance: str | None = None) -> int:
        """Kill a process of a service with signal 9; its pid."""
        rows = [row for row in self.rows() if row["service"] == service]
        pid = int(next(row["pid"] for row in rows if instance in (None, row["instance"])))
        os.kill(pid, signal.SIGKILL)
        return pid

    def faults(self) -> list[str]:
        """Lines of the services' logs that hold a traceback: what is killed leaves none, and nothing else may."""
        return [
            f"{log.name}: {line}"
            for log in sorted(self.data.logs.glob("*.log*"))
            for line in log.read_text(errors="replace").splitlines()
            if '"exception"' in line or line.startswith("Traceback")
        ]


@contextmanager
def running(
    root: Path, *arguments: str, settings: dict[str, str] | None = None, start: bool = True
) -> Iterator[LiveMesh]:
    """A mesh for the length of a ``with`` block; afterwards nothing of it runs, and no service had a fault."""
    mesh = LiveMesh(root=root, settings={**QUIET, **(settings or {})}, starts=arguments)
    root.mkdir(parents=True, exist_ok=True)
    try:
        if start:
            mesh.start()
        yield mesh
    finally:
        left = mesh.end()
    assert left == [], "processes outlived their mesh"
    assert mesh.faults() == []


@dataclass
class Session:
    """A session, seen and spoken to from outside."""

    mesh: LiveMesh
    bus: Bus
    name: str
    journal: Follower = field(init=False)

    def __post_init__(self) -> None:
        self.journal = Follower(self.bus, SessionRef(WORKSPACE, self.name))

    def make(self, **changes: Any) -> None:
        """Define an agent of the session's name, and make the session."""
        spec = agent(self.name, **changes)
        with self.mesh.api as api:
            api.put(f"/api/agents/{spec.name}", spec.model_dump(mode="json"))
            api.post("/api/sessions", {"name": self.name, "agent": spec.name})

    def say(self, text: str) -> int:
        """A person's message; its sequence."""
        with self.mesh.api as api:
            return int(api.post(f"/api/sessions/{self.name}/inputs", {"content": text})["sequence"])

    async def history(self) -> History:
        return await self.journal.history()

    async def ended(self, run: int, within_s: float = WITHIN_S) -> History:
        """The history, once a run has ended."""

        async def look() -> History | None:
            history = await self.journal.history()
            return history if history.ended(run) else None

        return await until(look, f"run {run} of {self.name} ends", within_s)

    async def rest_after(self, sequence: int, within_s: float = WITHIN_S) -> History:
        """The history, once the session is at rest and has consumed every input, at least up to ``sequence``."""

        async def look() -> History | None:
            history = await self.journal.history()
            anchor = history.anchors[-1].anchor if history.anchors else None
            newest = max((each.sequence for each in history.inputs), default=0)
            rest = anchor and anchor.status == "idle" and anchor.inputs_through >= max(newest, sequence)
            return history if rest else None

        return await until(look, f"{self.name} is at rest behind {sequence}", within_s)


def agent(name: str, **changes: Any) -> AgentSpec:
    """The fleet agent under another name. It keeps nothing in reserve, and hears of no event unless a test says so."""
    config = {"fleet_min": 0, "fleet_limit": 4, "tasks_per_instance": 30, **changes.pop("config", {})}
    fields = {"name": name, "subscriptions": (), "config": config, **changes}
    return default_agent().model_copy(update=fields)


async def launch(bus: Bus, key: str, count: int) -> list[Instance]:
    """Start workers as somebody else than the agent; they run when this returns."""
    yard = YardClient(bus)
    answer = await yard.ask("launch", 10.0, effect_key=key, count=count, priority="normal")
    wanted = set(answer["instances"])

    async def running_now() -> list[Instance] | None:
        found = [each for each in await yard.instances() if each.id in wanted and each.state == "running"]
        return found if len(found) == count else None

    return await until(running_now, f"{count} workers run", WITHIN_S)


def kill_workers(workers: list[Instance]) -> None:
    """Kill the processes with signal 9."""
    for each in workers:
        if each.pid is not None:
            os.kill(each.pid, signal.SIGKILL)


async def facts_when(bus: Bus, **wanted: Any) -> dict[str, Any]:
    """The fleet's facts, once they are as wanted."""

    async def look() -> dict[str, Any] | None:
        facts: dict[str, Any] = (await cli.status(bus))["facts"]
        return facts if all(facts[name] == value for name, value in wanted.items()) else None

    return await until(look, f"the fleet is {wanted}", WITHIN_S)


async def all_ready(mesh: LiveMesh, service: str, count: int) -> None:
    """Wait until so many processes of a service are ready."""

    async def look() -> bool:
        return [row["ready"] for row in mesh.rows() if row["service"] == service] == [True] * count

    await until(look, f"{count} of {service} are ready", WITHIN_S)
