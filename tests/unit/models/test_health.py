"""Whether a model is worth asking: a dead one is passed over for a while, and asked again for ever."""

from __future__ import annotations

import json

import pytest
from anchorwatch.core.errors import Damaged
from anchorwatch.models.health import FAILURES_MAX, REST_MS, REST_MS_MAX, Health, read_health
from hypothesis import given
from hypothesis import strategies as st

STEPS = st.lists(st.tuples(st.sampled_from(("answered", "failed", "refused")), st.integers(0, 2_000_000)))


def play(steps: list[tuple[str, int]]) -> tuple[Health, int]:
    health, now_ms = Health(), 0
    for what, after_ms in steps:
        now_ms += after_ms
        if what == "answered":
            health = health.answered(now_ms, 100, 90)
        else:
            health = health.failed("model_unavailable", "away", now_ms, for_good=what == "refused")
    return health, now_ms


@given(STEPS)
def test_model_is_retried_in_bounded_time_after_any_history(steps: list[tuple[str, int]]) -> None:
    health, now_ms = play(steps)
    assert health.is_worth_asking(now_ms + REST_MS_MAX)
    assert health.answered(now_ms, 1, None).is_worth_asking(now_ms)


@given(STEPS)
def test_stored_health_is_read_back(steps: list[tuple[str, int]]) -> None:
    health, _ = play(steps)
    assert read_health(json.loads(json.dumps(health.to_json()))) == health


def test_model_rests_longer_with_failures_until_one_answer() -> None:
    health, rests = Health(), []
    for _ in range(8):
        health = health.failed("model_unavailable", "away", 1_000)
        rests.append(health.asked_again_ms - 1_000 if health.asked_again_ms else 0)
    assert rests[:FAILURES_MAX] == [0, REST_MS]
    assert rests[2:] == [2 * REST_MS, 4 * REST_MS, 8 * REST_MS, 16 * REST_MS, REST_MS_MAX, REST_MS_MAX]
    assert health.answered(2_000, 1, None).failures == 0


def test_refusal_is_not_a_passing_fault() -> None:
    assert not Health().failed("model_refused", "bad key", 0, for_good=True).is_worth_asking(REST_MS - 1)


@pytest.mark.parametrize("value", [None, [], {"failures": "2"}, {"why": 3}])
def test_invalid_health_is_ignored(value: object) -> None:
    with pytest.raises(Damaged):
        read_health(value)


def test_clock_that_is_set_back_does_not_make_it_rest_longer() -> None:
    resting = Health().failed("timeout", "", 10 * REST_MS_MAX, for_good=True)
    assert not resting.is_worth_asking(10 * REST_MS_MAX)
    assert resting.is_worth_asking(0)
