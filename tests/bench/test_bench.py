"""The bench itself: with a load of almost nothing it works, and what it counts adds up. How fast anything is, no test asserts."""

from __future__ import annotations

import json

import pytest

from tests.bench import report
from tests.bench.plan import Plan
from tests.bench.run import run

TINY = Plan(
    sessions=4,
    rounds=1,
    warm_s=0.1,
    measured_s=0.4,
    floor_measured_s=0.3,
    sequential=5,
    sequential_warm=1,
    history=12,
    recoveries=1,
    lazy_mesh=False,
)


@pytest.mark.timeout(120)
async def test_every_wake_is_one_turn_one_effect_and_one_delivery() -> None:
    results = await run(TINY, "test", lambda _: None)
    counts = results.counts[report.MESH]
    # Sessions look once when they are made: those of the load, and the three whose turns follow one another.
    first_looks = TINY.sessions + 3
    # One round.
    followed = TINY.sequential + TINY.sequential_warm + TINY.history + TINY.recoveries
    assert counts.wakes == first_looks + followed + results.speeds[report.MESH].turns
    assert (counts.effects, counts.deliveries) == (counts.wakes, counts.wakes)
    assert (counts.effects_twice, counts.deliveries_twice) == (0, 0)
    text = report.text(results)
    assert all(row.label in text for row in report.ratios(results).values())
    assert json.loads(json.dumps(results.to_json()))["ratios"]["effects_twice"] == 0
