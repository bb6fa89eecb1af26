"""One session under test, with its clients: they repeat each request until they have its receipt."""

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
from anchorwatch.service.agents import is_subscribed
from anchorwatch.testing.crash_test.collect import Acknowledged
from anchorwatch.testing.crash_test.mesh import CrashMesh
from anchorwatch.testing.live import Follower

WORKSPACE = "default"
DISTURBANCES = 4
T = TypeVar("T")


@dataclass
class Actor:
    """A session of an agent with the same name. ``acknowledged``: the inputs and events with a receipt."""

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
        """Define the agent, and create the session."""

        def create(api: Api) -> None:
            api.put(f"/api/agents/{self.name}", self.spec.model_dump(mode="json"))
            api.post("/api/sessions", {"name": self.name, "agent": self.name})

        await self._request(create)

    async def send(self, stimulus: Stimulus) -> int:
        """Send a message or an event; returns its sequence in the journal or in the stream of events."""
        key = f"{self.name}-{next(self._numbers)}"
        if not stimulus.source:
            body = {"content": stimulus.text, "priority": stimulus.priority}
            receipt = await self._request(
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
        stored = await self._request(lambda api: api.post("/api/events", event, key=key))
        if is_subscribed(self.spec, f"{stimulus.source}.{stimulus.type}"):
            self.acknowledged.event(self.ref.workspace, stimulus.source, key)
        return int(stored["sequence"])

    async def control(self, order: str) -> None:
        """Give an order: ``pause``, ``resume`` or ``delete``."""
        key = f"{self.name}-{next(self._numbers)}"
        await self._request(lambda api: api.post(f"/api/sessions/{self.name}/{order}", {}, key=key))

    async def trigger(self) -> int:
        """Trigger a turn now; returns the sequence of the accepted input."""
        key, body = f"{self.name}-{next(self._numbers)}", {"reason": "now"}
        receipt = await self._request(
            lambda api: api.post(f"/api/sessions/{self.name}/trigger", body, key=key)
        )
        self.acknowledged.inputs.append(int(receipt["sequence"]))
        return int(receipt["sequence"])

    async def reset(self) -> None:
        """Reset the session in any state."""
        key, body = f"{self.name}-{next(self._numbers)}", {"confirmation": None}
        await self._request(lambda api: api.post(f"/api/sessions/{self.name}/reset", body, key=key))

    async def kill_switch(self, *, on: bool) -> None:
        """Turn the session's kill switch on or off."""
        key = f"{self.name}-{next(self._numbers)}"
        body = {"scope": "session", "name": self.name, "on": on}
        await self._request(lambda api: api.post("/api/kill-switches", body, key=key))

    async def schedule(self) -> None:
        """Create a schedule that never fires, and delete it."""
        name = f"{self.name[:50]}-{next(self._numbers)}"
        body = {"name": name, "session": self.name, "cron": "0 0 1 1 *"}
        await self._request(lambda api: api.post("/api/schedules", body, key=f"{name}-made"))
        await self._request(lambda api: api.delete(f"/api/schedules/{name}", key=f"{name}-deleted"))

    async def _request(self, send: Callable[[Api], T]) -> T:
        def attempt() -> T:
            with self.mesh.api() as api:
                return send(api)

        return await asyncio.to_thread(attempt)


async def disturb(actor: Actor, number: int) -> None:
    """Disturb the ``number``-th exercise, from 1: an event without a subscriber, or orders that hold the session briefly."""
    match number % DISTURBANCES:
        case 1:
            await actor.send(Stimulus(source="crash-test", type="note", data={"number": number}))
        case 2:
            await actor.control("pause")
            await actor.control("resume")
        case 3:
            await actor.kill_switch(on=True)
            await actor.kill_switch(on=False)
        case _:
            await actor.schedule()
