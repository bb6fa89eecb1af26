"""A real yard as a process of its own, on a real server, and ways to see what became of its workers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from anchorwatch.bus.jetstream import JetStreamBus
from anchorwatch.core.errors import Unavailable
from anchorwatch_fleet.client import YardClient
from anchorwatch_fleet.instances import Instance
from anchorwatch_fleet.yard.births import read_births

from tests.support.nats_server import NatsServer

_T = TypeVar("_T")

PATIENCE_S = 120.0
POLL_S = 0.05

_START = "import sys; from anchorwatch.service.runner import main; sys.exit(main('yard'))"


@dataclass
class YardProcess:
    """One yard. ``start`` after ``kill9`` keeps its directory."""

    server: NatsServer
    data_dir: Path
    bus: JetStreamBus
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    instance_name: str = "yard-1"

    @property
    def client(self) -> YardClient:
        return YardClient(self.bus)

    @property
    def log(self) -> str:
        return (self.data_dir / "yard.log").read_text()

    @property
    def births(self) -> Path:
        return self.data_dir / "yard" / "births.jsonl"

    async def start(self) -> None:
        self.spawn()
        await until(self._answers, "the yard answers")

    def spawn(self) -> None:
        """Start the process, without waiting until it answers."""
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("ANCHORWATCH_")
        }
        environment |= {
            "ANCHORWATCH_NATS_URL": self.server.url,
            "ANCHORWATCH_DATA_DIR": str(self.data_dir),
            "ANCHORWATCH_INSTANCE": self.instance_name,
        }
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with (self.data_dir / "yard.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _START], env=environment, stdout=log, stderr=log
            )

    async def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log
        try:
            await self.client.ask("ping", 0.5)
        except Unavailable:
            return False
        return True

    def wait_ended(self) -> int:
        """Wait until the process is over, for whatever reason; its exit code."""
        assert self.process is not None
        return self.process.wait(PATIENCE_S)

    def kill9(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
            self.process = None

    def stop(self) -> int:
        """End it in an orderly way; its exit code."""
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(PATIENCE_S)
        self.process = None
        return code

    async def launch(self, count: int, key: str = "key-1", **args: Any) -> list[str]:
        answer = await self.client.ask("launch", 10.0, effect_key=key, count=count, priority="normal", **args)
        return [str(each) for each in answer["instances"]]

    async def instance(self, instance_id: str) -> Instance:
        return next(each for each in await self.client.instances() if each.id == instance_id)

    async def until_state(self, instance_id: str, state: str) -> Instance:
        async def reached() -> Instance | None:
            instance = await self.instance(instance_id)
            return instance if instance.state == state else None

        return await until(reached, f"{instance_id} is {state}")

    def worker_pids(self) -> list[int]:
        """All that were ever born and are processes still."""
        return [birth.pid for birth in read_births(self.births) if is_alive(birth.pid)]


async def until(seen: Callable[[], Awaitable[_T | None]], what: str, patience_s: float = PATIENCE_S) -> _T:
    """Look until there is something to see; what it was."""
    deadline = time.monotonic() + patience_s
    while True:
        found = await seen()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {patience_s} s: {what}"
        await asyncio.sleep(POLL_S)


def is_alive(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
