"""The measurements, each a few numbers."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench import machine
from tests.bench.load import Throughput, sequence, throughput
from tests.bench.mesh import Mesh
from tests.bench.plan import Plan
from tests.bench.scene import Scene

# Turns on each side of a turn whose latency is told: a single one says little.
AROUND = 10
LOADS = 5
EARLY = 10
AGES = (1, 100, 1_000, 5_000)


@dataclass(frozen=True)
class Round:
    """One turn after the other (seconds of each), then many sessions at once. ``fsync_ms``: what the disk took for one then."""

    alone: Sequence[float]
    many: Throughput
    fsync_ms: float


@dataclass(frozen=True)
class History:
    """Milliseconds of a turn by its number, of loading the session from nothing, and of the first turn after ``kill -9``
    of the planner, less the time that its process took to start.
    """

    turn_ms: dict[int, float]
    load_ms: dict[int, float]
    restarted_ms: dict[int, float]


@dataclass(frozen=True)
class Recovery:
    """Executor killed after its effect and before its record: seconds until the turn was done."""

    total_s: list[float]
    process_start_s: list[float]
    beyond_start_s: list[float]


@dataclass(frozen=True)
class Counts:
    """What was counted outside the journal. All are equal, and nothing was done twice."""

    wakes: int
    effects: int
    deliveries: int
    effects_twice: int
    deliveries_twice: int

    @property
    def add_up(self) -> bool:
        return (
            self.wakes == self.effects == self.deliveries and not self.effects_twice + self.deliveries_twice
        )


def session_names(plan: Plan) -> list[str]:
    return [f"s{number}" for number in range(1, plan.sessions + 1)]


async def measure_round(scene: Scene, plan: Plan, measured_s: float) -> Round:
    fsync_ms = machine.fsync_p50_ms(scene.directory)
    took = await sequence(scene, "alone", plan.sequential_warm + plan.sequential)
    many = await throughput(scene, session_names(plan), plan.warm_s, measured_s)
    return Round(took[plan.sequential_warm :], many, fsync_ms)


async def history(mesh: Mesh, plan: Plan) -> History:
    """One session's turns from the first to the last; at an early one and at the last it is loaded anew."""
    took: list[float] = []
    load_ms, restarted_ms = {}, {}
    for mark in (EARLY, plan.history):
        # The turn behind a restart is told apart, and stands for itself.
        took += await sequence(mesh, "history", mark - 1 - len(took))
        load_ms[mark] = statistics.median([await mesh.load_ms("history") for _ in range(LOADS)])
        restarted_ms[mark] = await _first_after_restart(mesh)
        took.append(restarted_ms[mark] / 1000)
    return History({turn: _around(took, turn) for turn in AGES if turn <= len(took)}, load_ms, restarted_ms)


def _around(took: Sequence[float], turn: int) -> float:
    first = max(0, turn - 1 - AROUND)
    return statistics.median(took[first : turn + AROUND]) * 1000


async def _first_after_restart(mesh: Mesh) -> float:
    planner = mesh.process("planner")
    planner.kill9()
    await planner.start()
    begun = time.monotonic()
    await mesh.turn("history")
    return (time.monotonic() - begun) * 1000


async def recovery(mesh: Mesh, plan: Plan) -> Recovery:
    """The sink does what it is asked, and the executor dies before it hears of that."""
    found = Recovery([], [], [])
    executor = mesh.process("executor")
    for _ in range(plan.recoveries):
        held = mesh.sink.hold()
        running = asyncio.create_task(mesh.turn("recovery"))
        await held
        executor.kill9()
        killed_s = time.monotonic()
        await executor.start()
        await running
        total_s = time.monotonic() - killed_s
        found.total_s.append(total_s)
        found.process_start_s.append(executor.start_s)
        found.beyond_start_s.append(total_s - executor.start_s)
    return found


def counts(scene: Scene) -> Counts:
    effects, deliveries = scene.sink.effects, scene.receiver.deliveries
    return Counts(
        wakes=scene.wakes,
        effects=len(effects),
        deliveries=len(deliveries),
        effects_twice=sum(effects.values()) - len(effects),
        deliveries_twice=sum(deliveries.values()) - len(deliveries),
    )
