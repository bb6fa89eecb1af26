"""The kills of a crash test: planned by the seed, carried out, and followed by a restart of each process."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from anchorwatch.edges import Edge
from anchorwatch.mesh.files import last_line
from anchorwatch.mesh.roster import NATS
from anchorwatch.testing.crash_test.mesh import CrashMesh
from anchorwatch.testing.harness import Kill

REACH_MAX = 3
FIRST_SHARE = 2 / 3
RECONCILE = (Edge.EXECUTOR_RECONCILE_BEFORE, Edge.EXECUTOR_RECONCILE_AFTER)
PAUSE_S_MAX = 1.5
POLL_S = 0.02
KILLED = -signal.SIGKILL


@dataclass(frozen=True, slots=True)
class TimedKill:
    """A kill at no particular edge, ``after_s`` after the previous one."""

    instance: str
    after_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The kills of one seed. ``reaches``: the reach of each edge at which a process dies; ``kills``: the others, in order."""

    seed: int
    reaches: Mapping[Edge, int]
    kills: Sequence[TimedKill]


def make_plan(seed: int, instances: Sequence[str], kills: int, edges: Sequence[Edge] = tuple(Edge)) -> Plan:
    """The plan of a seed: a death at every edge, mostly at its first reach, and ``kills`` random ones, also of the server."""
    chance = random.Random(seed)  # noqa: S311 - it chooses times, and is not a secret
    reaches = {edge: _reach(edge, chance) for edge in edges}
    # Each instance once in random order, before any instance again.
    order: list[str] = []
    while len(order) < kills:
        order += chance.sample([*instances, NATS], len(instances) + 1)
    return Plan(
        seed, reaches, tuple(TimedKill(name, chance.uniform(0, PAUSE_S_MAX)) for name in order[:kills])
    )


def _reach(edge: Edge, chance: random.Random) -> int:
    """A session is created once, so the gateway reaches each of its edges only once; few calls are reconciled."""
    often = chance.randint(2, REACH_MAX)
    rare = edge.service == "gateway" or edge in RECONCILE
    return 1 if rare or chance.random() < FIRST_SHARE else often


class KillRunner:
    """Carries out a plan on one mesh, while `run` runs. ``kills``: so far, in order; ``crashes``: other ends of processes."""

    def __init__(self, mesh: CrashMesh, plan: Plan, on_kill: Callable[[Kill], None] = lambda _: None) -> None:
        self.kills: list[Kill] = []
        self.crashes: list[str] = []
        self._mesh = mesh
        self._left = dict(plan.reaches)
        self._timed = list(plan.kills)
        self._on_kill = on_kill
        self._next_s = time.monotonic() + (self._timed[0].after_s if self._timed else 0.0)
        self._by_plan: set[str] = set()

    @property
    def reached(self) -> Counter[Edge]:
        """How often a process died at each edge."""
        return Counter(kill.edge for kill in self.kills if kill.edge is not None)

    @property
    def done(self) -> bool:
        """Whether every planned kill has happened."""
        return not self._left and not self._timed

    async def arm(self) -> None:
        """Restart every process, so that it dies at the first planned edge that it reaches."""
        for instance in self._mesh.instances:
            self._start(instance)
        for instance in self._mesh.instances:
            await self._mesh.ready_or_ended(instance)

    async def press(self) -> None:
        """Let a process die at the first reach of each edge that is left: the work may not reach it more often."""
        self._left = dict.fromkeys(self._left, 1)
        services = {edge.service for edge in self._left}
        restarted = [name for name in self._mesh.instances if name.rpartition("-")[0] in services]
        for instance in restarted:
            # `run` counts the death of a process that has just ended.
            if instance not in self._mesh.ended():
                self._start(instance)
        for instance in restarted:
            await self._mesh.ready_or_ended(instance)

    async def disarm(self) -> None:
        """Restart every process without failpoints. Call it when `run` has ended."""
        self._left.clear()
        await self._restart_ended()
        for instance in self._mesh.instances:
            self._start(instance)
        for instance in self._mesh.instances:
            await self._mesh.ready(instance)

    async def run(self) -> None:
        """Carry out the plan until cancelled."""
        while True:
            await self._restart_ended()
            if self._timed and time.monotonic() >= self._next_s:
                await self._kill()
            await asyncio.sleep(POLL_S)

    async def _kill(self) -> None:
        kill = self._timed.pop(0)
        self._next_s = time.monotonic() + (self._timed[0].after_s if self._timed else 0.0)
        # A process that is down died for another reason, and is restarted for it.
        if kill.instance not in self._mesh.ended():
            self._by_plan.add(kill.instance)
            self._mesh.kill(kill.instance)
        await self._restart_ended()

    async def _restart_ended(self) -> None:
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
        self._on_kill(kill)

    def _start(self, instance: str) -> None:
        service = instance.rpartition("-")[0]
        points = (f"{edge}=kill@{reach}" for edge, reach in self._left.items() if edge.service == service)
        self._mesh.start(instance, ";".join(points))


def edge_of(line: str) -> Edge | None:
    """The edge in the last log line of a process; None if that names none."""
    try:
        entry = json.loads(line)
        return Edge(entry["edge"]) if entry.get("event") == "failpoint.reached" else None
    except (ValueError, KeyError, AttributeError):
        return None
