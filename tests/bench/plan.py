"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Seconds and counts. ``history``: the last turn of the session whose turns follow one another."""

    sessions: int = 100
    warm_s: float = 2.0
    measured_s: float = 12.0
    floor_warm_s: float = 1.0
    floor_measured_s: float = 5.0
    sequential: int = 400
    sequential_warm: int = 40
    history: int = 1_000
    recoveries: int = 3
    floors_after: bool = True
    lazy_mesh: bool = True


FULL = Plan()
QUICK = Plan(
    warm_s=1.0,
    measured_s=5.0,
    floor_measured_s=2.0,
    sequential=150,
    sequential_warm=20,
    history=300,
    recoveries=1,
    lazy_mesh=False,
)
