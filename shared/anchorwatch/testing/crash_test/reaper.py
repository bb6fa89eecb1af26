"""Kills by plan, sees who died and where, and brings each of them back: armed with what has not been reached so far."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import Callable

from anchorwatch.edges import Edge
from anchorwatch.mesh.files import last_line
from anchorwatch.mesh.roster import NATS
from anchorwatch.testing.crash_test.mesh import CrashMesh
from anchorwatch.testing.crash_test.plan import Plan
from anchorwatch.testing.harness import Kill

POLL_S = 0.02
KILLED = -signal.SIGKILL


class Reaper:
    """Works on one mesh while `run` does. ``kills``: all so far, in order; ``crashes``: who ended in another way."""

    def __init__(self, mesh: CrashMesh, plan: Plan, tell: Callable[[Kill], None] = lambda _: None) -> None:
        self.kills: list[Kill] = []
        self.crashes: list[str] = []
        self._mesh = mesh
        self._left = dict(plan.reaches)
        self._timed = list(plan.kills)
        self._tell = tell
        self._next_s = time.monotonic() + (self._timed[0].after_s if self._timed else 0.0)
        self._by_plan: set[str] = set()

    @property
    def reached(self) -> Counter[Edge]:
        """How often a process died at each edge."""
        return Counter(kill.edge for kill in self.kills if kill.edge is not None)

    @property
    def done(self) -> bool:
        """Whether everything that was planned has happened."""
        return not self._left and not self._timed

    async def arm(self) -> None:
        """Start every process anew, so that it dies at the first edge of the plan that it reaches."""
        for instance in self._mesh.instances:
            self._start(instance)
        for instance in self._mesh.instances:
            await self._mesh.ready_or_ended(instance)

    async def disarm(self) -> None:
        """Start every process anew, to live; what has died meanwhile is brought back too. Call it when `run` has ended."""
        self._left.clear()
        await self._look()
        for instance in self._mesh.instances:
            self._start(instance)
        for instance in self._mesh.instances:
            await self._mesh.ready(instance)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._look()
            if self._timed and time.monotonic() >= self._next_s:
                await self._kill()
            await asyncio.sleep(POLL_S)

    async def _kill(self) -> None:
        kill = self._timed.pop(0)
        self._next_s = time.monotonic() + (self._timed[0].after_s if self._timed else 0.0)
        # One that is down already has died for another reason, and is brought back for it.
        if kill.instance not in self._mesh.ended():
            self._by_plan.add(kill.instance)
            self._mesh.kill(kill.instance)
        await self._look()

    async def _look(self) -> None:
        for instance, code in self._mesh.ended().items():
            if code != KILLED:
                self.crashes.append(
                    f"{instance} ended with {code}: {last_line(self._mesh.data.log(instance))}"
                )
            else:
                self._note(instance)
            if instance == NATS:
                await self._mesh.start_nats()
            else:
                self._start(instance)

    def _note(self, instance: str) -> None:
        edge = None if instance in self._by_plan else edge_of(last_line(self._mesh.data.log(instance)))
        self._by_plan.discard(instance)
        if edge is not None:
            self._left.pop(edge, None)
        kill = Kill(instance, edge)
        self.kills.append(kill)
        self._tell(kill)

    def _start(self, instance: str) -> None:
        service = instance.rpartition("-")[0]
        points = (f"{edge}=kill@{reach}" for edge, reach in self._left.items() if edge.service == service)
        self._mesh.start(instance, ";".join(points))


def edge_of(line: str) -> Edge | None:
    """The edge that a process named with its last words; None when it died without any."""
    try:
        said = json.loads(line)
        return Edge(said["edge"]) if said.get("event") == "failpoint.reached" else None
    except (ValueError, KeyError, AttributeError):
        return None
