"""One run of a soak: what a worker process does."""

from __future__ import annotations

import time

from tests.sim.whole.run import Report, simulate


def one(seed: int) -> tuple[Report, float]:
    """A run, and the seconds of work that it took. What it raises is a violation too."""
    began_s = time.process_time()
    try:
        report = simulate(seed)
    except Exception as error:  # noqa: BLE001 - whatever it is, its seed is what counts
        report = Report(seed, violations=[f"it ended in {error!r}"])
    return report, time.process_time() - began_s
