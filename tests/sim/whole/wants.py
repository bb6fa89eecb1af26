"""What people and the world want of a simulated mesh while everything goes wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from anchorwatch.core.names import SessionRef
from anchorwatch.testing.mesh import SimMesh

from tests.sim.whole.people import People
from tests.sim.whole.provider import Provider

SPAN_S = 12.0
"""So long there is somebody who wants something."""
_WANTS = (
    *("say", "say", "trigger", "event", "event", "api event", "alarm"),
    *("pause", "control", "schedule", "gone"),
)
_CONTROLS = ("cancel", "steer", "objectives", "wakes/clear", "reset", "kill-switch")


class Wants:
    """A few things, drawn by ``chance``, of sessions of one agent."""

    def __init__(
        self,
        chance: random.Random,
        mesh: SimMesh,
        people: People,
        provider: Provider,
        agent: str,
        refs: Sequence[SessionRef],
    ) -> None:
        self._chance = chance
        self._mesh = mesh
        self._people = people
        self._provider = provider
        self._agent = agent
        self._refs = refs

    async def all(self) -> None:
        """Let each of them come at its moment, and see it through."""
        count = self._chance.choice((3, 4, 6, 8))
        tasks = [self._want(number) for number in range(count)]
        await asyncio.gather(*tasks)

    async def _want(self, number: int) -> None:
        await asyncio.sleep(self._chance.uniform(0, SPAN_S))
        ref = self._chance.choice(self._refs)
        match self._chance.choice(_WANTS):
            case "say":
                await self._people.say(ref, f"say-{number}")
            case "trigger":
                await self._people.trigger(ref, f"trigger-{number}")
            case "event":
                await self._people.publish(f"event-{number}")
            case "api event":
                await self._people.publish_by_api(f"api-event-{number}")
            case "alarm":
                self._provider.alarms += 1
            case "schedule":
                await self._people.keep_schedule(ref, f"schedule-{number}")
            case "gone":
                await self._people.abandon(self._agent, f"gone-{number}")
            case "pause":
                await self._people.pause(ref, f"hold-{number}", self._chance.choice((0.5, 2.0)))
            case _:
                await self._control(ref, f"control-{number}")

    async def _control(self, ref: SessionRef, key: str) -> None:
        anchor = self._mesh.anchor_now(ref)
        turn = str(anchor.run_id if anchor else 0)
        match self._chance.choice(_CONTROLS):
            case "cancel":
                await self._people.order(ref, "cancel", key, {"turn": turn})
            case "steer":
                await self._people.order(ref, "steer", key, {"turn": turn, "text": "more slowly"})
            case "objectives":
                await self._people.order(ref, "objectives", key, {"change": "add", "items": [key]})
            case "kill-switch":
                await self._people.turn_switch(key)
            case "wakes/clear":
                await self._people.order(ref, "wakes/clear", key)
            case _:
                await self._people.order(ref, "reset", key, {"confirmation": None})
                if self._chance.random() < 0.5:
                    await self._people.order(ref, "undo-reset", f"{key}-undo")
