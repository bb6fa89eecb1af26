"""One case of the sweep: a process dies at one edge, another takes its place, and the session comes to rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

from anchorwatch.edges import Edge

from tests.chaos.scene import KILLED, Scene, Told
from tests.support.waiting import eventually, is_stopped

DEATH_S_MAX = 45.0
LARGE = " " * 40_000


@dataclass
class Case:
    """``reach``: at which reach of the edge its process dies."""

    scene: Scene
    actor: Told
    edge: Edge
    reach: int
    parallel: bool

    @property
    def instance(self) -> str:
        return f"{self.edge.service}-1"

    async def arm(self, edge: Edge | None = None, reach: int | None = None, *, failing: str = "") -> None:
        """Have the service's next process die at the edge (this case's, or another). ``failing``: failpoints besides."""
        self.scene.mesh.start(self.instance, f"{edge or self.edge}=kill@{reach or self.reach};{failing}")
        # It may come to its edge by what its former self left to do, before it says that it works.
        await self.scene.mesh.ready_or_ended(self.instance)

    async def death(self) -> None:
        """Wait until the process has died, and see that it died at its edge."""
        child = self.scene.mesh.children[self.instance]

        async def dead() -> bool:
            return child.exit_code is not None

        await eventually(dead, DEATH_S_MAX, f"{self.instance} reaches {self.edge}")
        assert child.exit_code == KILLED

    async def stops(self) -> None:
        """Wait until the process has stopped itself at a failpoint."""

        async def stopped() -> bool:
            return is_stopped(self.scene.mesh.children[self.instance].pid)

        await eventually(stopped, DEATH_S_MAX, f"{self.instance} stops")

    async def back(self) -> None:
        """Start it again, without any failpoint."""
        self.scene.mesh.start(self.instance)
        await self.scene.mesh.ready(self.instance)

    async def tell(self) -> None:
        """Everything that a session may be told: calls of every class, events, things too large for a record."""
        await self.actor.make()
        if self.parallel:
            await self.actor.say(
                [
                    ("set", "a", "artifact"),
                    ("build", "b", "lost_once"),
                    ("fire", "c", "ok"),
                    ("look", "d", "ok"),
                ],
                [("build", "e", "ok"), ("fire", "f", "lost")],
            )
        else:
            await self.actor.say(
                [("set", "a", "artifact")],
                [("build", "b", "lost_once")],
                [("fire", "c", "lost")],
                [("look", "d", "ok")],
            )
        await self.actor.publish("a note")
        await self.actor.publish(LARGE)
        await self.actor.say(more=LARGE)
        self.actor.world.set_world(dead="w-1")

    async def dies_during(self, telling: Awaitable[None]) -> None:
        """Wait for the death while this is told, start the process again, and see the telling to its end."""
        task = asyncio.ensure_future(telling)
        try:
            await self.death()
            await self.back()
            await task
        finally:
            task.cancel()
