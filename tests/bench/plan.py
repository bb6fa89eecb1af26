"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Seconds and counts. ``rounds``: how often floors and mesh take turns; the other figures of load are for each round.

    ``history``: the last turn of the session whose turns follow one another.
    """

    sessions: int = 100
    rounds: int = 7
    warm_s: float = 1.0
    measured_s: float = 6.0
    floor_measured_s: float = 3.0
    sequential: int = 100
    sequential_warm: int = 10
    history: int = 5_000
    recoveries: int = 3
    lazy_mesh: bool = True
    restate: bool = False


FULL = Plan()
QUICK = Plan(
    rounds=3,
    measured_s=3.0,
    floor_measured_s=1.5,
    sequential=60,
    history=300,
    recoveries=1,
    lazy_mesh=False,
)
