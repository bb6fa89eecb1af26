"""What is killed, and when: all of it from the seed. How processes are scheduled stays the machine's."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anchorwatch.edges import Edge
from anchorwatch.mesh.roster import NATS

REACH_MAX = 3
FIRST_SHARE = 2 / 3
PAUSE_S_MAX = 1.5


@dataclass(frozen=True, slots=True)
class TimedKill:
    """A kill at no particular edge, ``after_s`` after the previous one."""

    instance: str
    after_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Of one seed. ``reaches``: at which reach of each edge a process dies; ``kills``: the others, in order."""

    seed: int
    reaches: Mapping[Edge, int]
    kills: Sequence[TimedKill]


def make_plan(seed: int, instances: Sequence[str], kills: int, edges: Sequence[Edge] = tuple(Edge)) -> Plan:
    """The plan of a seed: a death at every edge, most at its first reach, and ``kills`` at random, the server's among them."""
    chance = random.Random(seed)  # noqa: S311 - it chooses moments, and hides nothing
    reaches = {edge: _reach(edge, chance) for edge in edges}
    # Each of them once in an order of its own, before any of them again.
    order: list[str] = []
    while len(order) < kills:
        order += chance.sample([*instances, NATS], len(instances) + 1)
    return Plan(
        seed, reaches, tuple(TimedKill(name, chance.uniform(0, PAUSE_S_MAX)) for name in order[:kills])
    )


def _reach(edge: Edge, chance: random.Random) -> int:
    """A session is made once: what the gateway does for that is reached no second time."""
    often = chance.randint(2, REACH_MAX)
    return 1 if edge.service == "gateway" or chance.random() < FIRST_SHARE else often
