"""How many runs of the whole mesh a test session makes, and which: blocks of seeds, or the one seed that is to be replayed."""

from __future__ import annotations

import os

RUNS = int(os.environ.get("ANCHORWATCH_SIM_RUNS", "100"))
FIRST = int(os.environ.get("ANCHORWATCH_SIM_FIRST", "0"))
REPLAYED = os.environ.get("ANCHORWATCH_SIM_SEED")
BLOCK = 10


def blocks() -> list[range]:
    """The seeds, block by block."""
    if REPLAYED is not None:
        return [range(int(REPLAYED), int(REPLAYED) + 1)]
    return [range(start, min(start + BLOCK, FIRST + RUNS)) for start in range(FIRST, FIRST + RUNS, BLOCK)]


def replay(seed: int) -> str:
    """The command that runs exactly this seed again."""
    return f"ANCHORWATCH_SIM_SEED={seed} .venv/bin/pytest tests/sim/test_whole_mesh.py"
