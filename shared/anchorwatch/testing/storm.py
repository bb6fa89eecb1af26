"""Random faults by a seed: each run draws its own kinds of faults, with rates and times.

A run with every kind at once mostly finds the same few defects, so each seed omits most kinds (swarm testing). Faults
are counted by kind.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field

from anchorwatch.edges import Edge
from anchorwatch.testing.bus import FaultKind, SimServer
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.testing.process import Life, Process

RATES: dict[FaultKind, tuple[float, ...]] = {
    FaultKind.LOST_REQUEST: (0.002, 0.01),
    FaultKind.LOST_ACK: (0.005, 0.03),
    FaultKind.ZOMBIE_WRITE: (0.005, 0.02),
    FaultKind.SPURIOUS_FENCE: (0.02, 0.1),
    FaultKind.SLOW_CALL: (0.01, 0.05),
    FaultKind.STALE_READ: (0.02, 0.2),
    FaultKind.STALE_KEY: (0.02, 0.2),
    FaultKind.DUPLICATE_DELIVERY: (0.02, 0.2),
    FaultKind.DELAYED_DELIVERY: (0.02, 0.2),
    FaultKind.REORDERED_DELIVERY: (0.1, 0.5),
    FaultKind.SLOW_FETCH: (0.02, 0.1),
    FaultKind.LOST_DELIVERY_ACK: (0.02, 0.1),
    FaultKind.ORPHANED_PULL: (0.2, 0.5),
    FaultKind.LOST_ANNOUNCEMENT: (0.01, 0.05),
    FaultKind.SLOW_SOURCE: (0.05, 0.3),
    FaultKind.SLOW_SCHEDULE: (0.05, 0.3),
}
"""The random faults of single messages, and the rates that a run may draw."""
HOUR_S = 3600.0
BACK_S = (0.0, 0.1, 1.0, 4.0, 10.0)
"""How long a process is down, in seconds; some are longer than a lease."""
LONG_S = 16.0
ZOMBIE_EDGES = (Edge.EXECUTOR_EFFECT_BEFORE, Edge.EXECUTOR_EFFECT_AFTER, Edge.EXECUTOR_OUTCOME_BEFORE)
"""The edges at which a long stop makes a zombie."""


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """What a run will suffer: rates of faults by message, edges to strike at (with the reach), blows at instants (seconds)."""

    rates: dict[FaultKind, float]
    edges: tuple[tuple[str, Edge, int], ...]
    blows: tuple[tuple[str, float], ...]


KILL, STOP, STOP_LONG = "kill at an edge", "stop at an edge", "stop for long at an edge"
DEFECT = "defect at an edge"
DEFECT_EDGES = (
    Edge.OBSERVER_INPUT_BEFORE,
    Edge.PLANNER_ACQUIRE_BEFORE,
    Edge.EXECUTOR_CLAIM_BEFORE,
    Edge.NOTIFIER_CLAIM_BEFORE,
)
"""The edges at which a handler fails repeatedly, as defective code does, so that its message is a dead letter."""
DEFECTIVE, DEFECTS = 0.15, 3
BLOWS = ("kill", "stop", "cut", "zombie", "restart", "clock")


def draw(chance: random.Random, edges: Sequence[Edge], span_s: float) -> FaultPlan:
    """A plan by ``chance``; ``edges`` are those that may be struck at, ``span_s`` how long the run works."""
    kinds = chance.sample(sorted(RATES), chance.choice((0, 1, 2, 3, 5)))
    # A process that stops for long at such an edge continues there as a zombie.
    zombies = [each for each in edges if each in ZOMBIE_EDGES]
    struck = [(STOP_LONG, chance.choice(zombies), 1)] if zombies and chance.random() < 0.15 else []  # noqa: PLR2004 - some runs
    struck += [
        (chance.choice((KILL, KILL, STOP)), chance.choice(edges), chance.choice((1, 1, 2, 3, 5)))
        for _ in range(chance.choice((1, 2, 3)))
    ]
    blows = [(chance.choice(BLOWS), chance.uniform(0, span_s)) for _ in range(chance.choice((0, 0, 1, 2, 3)))]
    defective = [each for each in edges if each in DEFECT_EDGES]
    if defective and chance.random() < DEFECTIVE:
        where, reach = chance.choice(defective), chance.choice((1, 2, 4))
        struck += [(DEFECT, where, reach + n) for n in range(DEFECTS)]
    return FaultPlan(
        rates={kind: chance.choice(RATES[kind]) for kind in kinds},
        edges=tuple(struck),
        blows=tuple(sorted(blows, key=lambda blow: blow[1])),
    )


@dataclass
class Storm:
    """Carries out a plan, and restores the mesh afterwards."""

    mesh: SimMesh
    chance: random.Random
    plan: FaultPlan
    counts: Counter[str] = field(default_factory=Counter)
    deaths: set[str] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _long: set[asyncio.Task[None]] = field(default_factory=set)
    _zombies: list[Life] = field(default_factory=list)
    _stepped_s: float = 0.0

    def begin(self) -> None:
        """Start the plan; crashed processes are started again, as by a supervisor."""
        self.mesh.on_crash = lambda process: self._later(self._back(process, 1.0))
        for kind, edge, reach in self.plan.edges:
            strikes = {
                KILL: self._kill_here,
                STOP: self._stop_here,
                STOP_LONG: self._stop_long_here,
                DEFECT: self._fail_here,
            }
            self.mesh.watch.plan(edge, reach, strikes[kind])
        for kind, at_s in self.plan.blows:
            self._spawn(self._blow(kind, at_s))

    async def calm(self) -> None:
        """End all faults: every process runs with a connection, and the clock is right."""
        self.mesh.watch.forget()
        self.mesh.server.faults.enabled = False
        await asyncio.gather(*self._long)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.mesh.server.start()
        self._step(-self._stepped_s)
        for life in self._zombies:
            _heal(life)
        for process in self.mesh.processes.values():
            if process.life is not None:
                _heal(process.life)
            if not process.running:
                process.launch()

    async def strike_once(self) -> None:
        """Kill one process, for a run without another fault."""
        await self._strike(self._kill)

    # At an edge, in the affected process.

    def _kill_here(self, life: Life) -> None:
        self._note(KILL, life)
        self._later(self._back(life.process, self.chance.choice(BACK_S)))
        life.die_here()

    def _stop_here(self, life: Life) -> None:
        self._note(STOP, life)
        life.stop()
        self._later(self._awake(life, self.chance.choice(BACK_S)))

    def _stop_long_here(self, life: Life) -> None:
        self._note(STOP_LONG, life)
        life.stop()
        self._long.add(self.mesh.outside(self._awake(life, LONG_S)))

    def _fail_here(self, life: Life) -> None:
        self.counts[DEFECT] += 1
        raise RuntimeError(f"a defect of {life.identity.service}")

    # At a time.

    async def _blow(self, kind: str, at_s: float) -> None:
        await asyncio.sleep(at_s)
        match kind:
            case "kill":
                await self._strike(self._kill)
            case "stop":
                await self._strike(self._stop)
            case "cut":
                await self._strike(self._cut)
            case "zombie":
                await self._strike(self._zombie)
            case "restart":
                await self._restart(self.mesh.server)
            case _:
                self.counts["clock jump"] += 1
                self._step(self.chance.choice((-HOUR_S, -60.0, 60.0, HOUR_S)))

    async def _strike(self, blow: Callable[[Life], Awaitable[None]]) -> None:
        alive = [process.life for process in self.mesh.processes.values() if process.running and process.life]
        if alive:
            await blow(self.chance.choice(alive))

    async def _kill(self, life: Life) -> None:
        self._note("kill", life)
        life.die()
        await self._back(life.process, self.chance.choice(BACK_S))

    async def _stop(self, life: Life) -> None:
        self._note("stop", life)
        life.stop()
        await self._awake(life, self.chance.choice(BACK_S))

    async def _cut(self, life: Life) -> None:
        self._note("cut", life)
        life.cut()
        self._zombies.append(life)
        await asyncio.sleep(self.chance.choice(BACK_S))
        self._zombies.remove(life)
        life.reconnect()

    async def _zombie(self, life: Life) -> None:
        """Start a second incarnation while the first is cut or stopped; then the first continues."""
        self._note("zombie", life)
        away, back = (life.cut, life.reconnect) if self.chance.random() < 0.5 else (life.stop, life.resume)  # noqa: PLR2004 - a coin flip
        away()
        self._zombies.append(life)
        await asyncio.sleep(self.chance.choice(BACK_S))
        life.process.launch()
        await asyncio.sleep(self.chance.choice(BACK_S))
        self._zombies.remove(life)
        back()

    async def _restart(self, server: SimServer) -> None:
        self.counts["bus restart"] += 1
        server.stop()
        await asyncio.sleep(self.chance.choice((0.1, 1.0, 4.0)))
        server.start()

    async def _back(self, process: Process, after_s: float) -> None:
        await asyncio.sleep(after_s)
        if not process.running:
            process.launch()

    async def _awake(self, life: Life, after_s: float) -> None:
        self._zombies.append(life)
        await asyncio.sleep(after_s)
        self._zombies.remove(life)
        life.resume()

    def _step(self, seconds: float) -> None:
        self._stepped_s += seconds
        if seconds:
            self.mesh.server.step_clock(seconds)

    def _note(self, what: str, life: Life) -> None:
        self.counts[what] += 1
        self.deaths.add(life.identity.execution_id)

    def _later(self, work: Coroutine[None, None, None]) -> None:
        """Run ``work`` outside of the calling process."""
        self._spawn(work)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self.mesh.outside(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _heal(life: Life) -> None:
    if life.dead:
        return
    life.resume()
    while not life.bus.connected and life.bus.server.running:
        life.reconnect()
