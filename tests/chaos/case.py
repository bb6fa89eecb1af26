"""One case of the sweep: a process dies at one edge, another replaces it, and the session comes to rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

from anchorwatch.edges import Edge

from tests.chaos.mesh import KILLED, ChaosMesh, ChaosSession
from tests.support.waiting import eventually, is_stopped

DEATH_S_MAX = 45.0
LARGE = " " * 40_000


@dataclass
class Case:
    """``reach``: the process dies when it reaches the edge for this time, counted from 1."""

    chaos: ChaosMesh
    actor: ChaosSession
    edge: Edge
    reach: int
    parallel: bool

    @property
    def instance(self) -> str:
        return f"{self.edge.service}-1"

    async def arm(self, edge: Edge | None = None, reach: int | None = None, *, failing: str = "") -> None:
        """Start a process that dies at ``edge`` (default: the case's). ``failing``: further failpoints."""
        self.chaos.mesh.start(self.instance, f"{edge or self.edge}=kill@{reach or self.reach};{failing}")
        # Work that its predecessor left may lead it to the edge before it is ready.
        await self.chaos.mesh.ready_or_ended(self.instance)

    async def death(self) -> None:
        """Wait until the process has died by its failpoint."""
        child = self.chaos.mesh.children[self.instance]

        async def dead() -> bool:
            return child.exit_code is not None

        await eventually(dead, DEATH_S_MAX, f"{self.instance} reaches {self.edge}")
        assert child.exit_code == KILLED

    async def stops(self) -> None:
        """Wait until the process has stopped itself at a failpoint."""

        async def stopped() -> bool:
            return is_stopped(self.chaos.mesh.children[self.instance].pid)

        await eventually(stopped, DEATH_S_MAX, f"{self.instance} stops")

    async def back(self) -> None:
        """Start the process without a failpoint, and wait until it is ready."""
        self.chaos.mesh.start(self.instance)
        await self.chaos.mesh.ready(self.instance)

    async def send_all(self) -> None:
        """Send each kind of input: calls of every effect class, events, and contents too large for a record."""
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

    async def dies_during(self, sending: Awaitable[None]) -> None:
        """Wait for the death while ``sending`` runs, replace the process, and wait for the end of ``sending``."""
        task = asyncio.ensure_future(sending)
        try:
            await self.death()
            await self.back()
            await task
        finally:
            task.cancel()
