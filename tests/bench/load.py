"""Load: many sessions with one turn in flight each, or one session whose turns follow one another."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.scene import Scene, Usage


@dataclass(frozen=True)
class Latency:
    """Milliseconds from the publishing of an event to the arrival of its turn's notification."""

    p50_ms: float
    p99_ms: float
    count: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        ordered = sorted(seconds)
        p99 = ordered[min(len(ordered) - 1, round(len(ordered) * 0.99))]
        return cls(statistics.median(ordered) * 1000, p99 * 1000, len(ordered))


@dataclass(frozen=True)
class Throughput:
    """Turns of many sessions. ``took``: seconds of each within the measured time; ``usage`` covers ``turns``, the warm-up too."""

    turns_a_second: float
    turns: int
    took: Sequence[float]
    usage: Usage


async def throughput(scene: Scene, sessions: Sequence[str], warm_s: float, measured_s: float) -> Throughput:
    """Keep one turn of every session in flight, and count those that end within the measured time."""
    before = await scene.usage()
    start = time.monotonic()
    ended: list[tuple[float, float]] = []

    async def keep_going(session: str) -> None:
        while time.monotonic() < start + warm_s + measured_s:
            begun = time.monotonic()
            await scene.turn(session)
            ended.append((time.monotonic(), time.monotonic() - begun))

    async with asyncio.TaskGroup() as tasks:
        for session in sessions:
            tasks.create_task(keep_going(session))
    inside = [took for at, took in ended if start + warm_s <= at < start + warm_s + measured_s]
    usage = (await scene.usage()).since(before)
    return Throughput(len(inside) / measured_s, len(ended), inside, usage)


async def sequence(scene: Scene, session: str, count: int) -> list[float]:
    """The next turns of one session, one after the other; seconds of each."""
    took = []
    for _ in range(count):
        begun = time.monotonic()
        await scene.turn(session)
        took.append(time.monotonic() - begun)
    return took
