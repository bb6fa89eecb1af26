"""One session under test, spoken to as people and programs do: they ask again until they have their receipt."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from anchorwatch.bus.port import Bus
from anchorwatch.cli.api import Api
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.names import SessionRef
from anchorwatch.packs.port import Stimulus
from anchorwatch.service.agents import subscribed
from anchorwatch.testing.crash_test.collecting import Acknowledged
from anchorwatch.testing.crash_test.mesh import CrashMesh
from anchorwatch.testing.live import Follower

WORKSPACE = "default"
T = TypeVar("T")


@dataclass
class Actor:
    """A session of an agent of the same name. ``acknowledged``: what its senders were promised."""

    mesh: CrashMesh
    bus: Bus
    spec: AgentSpec
    acknowledged: Acknowledged = field(default_factory=Acknowledged)

    def __post_init__(self) -> None:
        self.ref = SessionRef(WORKSPACE, self.spec.name)
        self.journal = Follower(self.bus, self.ref)
        self._numbers = itertools.count(1)

    @property
    def name(self) -> str:
        return self.spec.name

    async def make(self) -> None:
        """Define its agent, and make it."""

        def ask(api: Api) -> None:
            api.put(f"/api/agents/{self.name}", self.spec.model_dump(mode="json"))
            api.post("/api/sessions", {"name": self.name, "agent": self.name})

        await self._ask(ask)

    async def tell(self, stimulus: Stimulus) -> int:
        """A message or an event; the journal sequence of the one, that in the stream of events of the other."""
        key = f"{self.name}-{next(self._numbers)}"
        if not stimulus.source:
            body = {"content": stimulus.text, "priority": stimulus.priority}
            receipt = await self._ask(
                lambda api: api.post(f"/api/sessions/{self.name}/inputs", body, key=key)
            )
            self.acknowledged.inputs.append(int(receipt["sequence"]))
            return int(receipt["sequence"])
        event = {
            "source": stimulus.source,
            "type": stimulus.type,
            "data": stimulus.data,
            "priority": stimulus.priority,
            "id": key,
        }
        stored = await self._ask(lambda api: api.post("/api/events", event, key=key))
        if subscribed(self.spec, f"{stimulus.source}.{stimulus.type}"):
            self.acknowledged.event(stimulus.source, key)
        return int(stored["sequence"])

    async def control(self, order: str) -> None:
        """A person's order: ``pause``, ``resume``, ``delete``."""
        key = f"{self.name}-{next(self._numbers)}"
        await self._ask(lambda api: api.post(f"/api/sessions/{self.name}/{order}", {}, key=key))

    async def trigger(self) -> int:
        """Ask for a turn now; the sequence of what was accepted."""
        key, body = f"{self.name}-{next(self._numbers)}", {"reason": "now"}
        receipt = await self._ask(lambda api: api.post(f"/api/sessions/{self.name}/trigger", body, key=key))
        self.acknowledged.inputs.append(int(receipt["sequence"]))
        return int(receipt["sequence"])

    async def reset(self) -> None:
        """Reset the session, whatever there is."""
        key, body = f"{self.name}-{next(self._numbers)}", {"confirmation": None}
        await self._ask(lambda api: api.post(f"/api/sessions/{self.name}/reset", body, key=key))

    async def kill_switch(self, *, on: bool) -> None:
        """Turn the session's kill switch."""
        key = f"{self.name}-{next(self._numbers)}"
        body = {"scope": "session", "name": self.name, "on": on}
        await self._ask(lambda api: api.post("/api/kill-switches", body, key=key))

    async def schedule(self) -> None:
        """Make a schedule that will not come to anything, and delete it."""
        name = f"{self.name[:50]}-{next(self._numbers)}"
        body = {"name": name, "session": self.name, "cron": "0 0 1 1 *"}
        await self._ask(lambda api: api.post("/api/schedules", body, key=f"{name}-made"))
        await self._ask(lambda api: api.delete(f"/api/schedules/{name}", key=f"{name}-deleted"))

    async def _ask(self, ask: Callable[[Api], T]) -> T:
        def asked() -> T:
            with self.mesh.api() as api:
                return ask(api)

        return await asyncio.to_thread(asked)
