"""The whole mesh, all services with their real code, by seeds; after each run every promise is checked.

What a failure prints replays it. The summary at the end of the session says what the runs came to (tests/sim/whole/plugin.py).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sim.whole.blocks import blocks, replay
from tests.sim.whole.run import TURNS_MIN, Report, simulate

ROOT = Path(__file__).parents[2]
DIGEST = "from tests.sim.whole.run import simulate; print(simulate({seed}).digest)"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", blocks(), ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_mesh_keeps_every_guarantee_under_any_fault(
    seeds: range, note_run: Callable[[Report, float], None]
) -> None:
    faults = 0
    for seed in seeds:
        began_s = time.process_time()
        report = simulate(seed)
        note_run(report, time.process_time() - began_s)
        assert report.violations == [], f"seed {seed}; replay it: {replay(seed)}"
        assert report.turns >= TURNS_MIN
        faults += sum(report.faults.values())
    # A short run may have none by chance; one that is replayed is run alone.
    assert faults >= len(seeds) - 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 8])
def test_same_seed_gives_the_same_journal_byte_for_byte(seed: int) -> None:
    digests = {simulate(seed).digest, simulate(seed).digest}
    for salt in ("1", "2"):
        command = [sys.executable, "-c", DIGEST.format(seed=seed)]
        environment = {"PYTHONHASHSEED": salt, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
        digests.add(done.stdout.strip())
    assert len(digests) == 1
    assert simulate(seed + 1).digest not in digests
