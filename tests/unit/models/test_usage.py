"""What a model call used: the reports that can be true, and estimates in place of the others."""

from __future__ import annotations

from typing import Any

import pytest
from anchorwatch.models.usage import Usage, read_usage, written
from hypothesis import given
from hypothesis import strategies as st

COUNTED, LONGEST = 1_000, 500


@pytest.mark.parametrize("prompt", [-1, 0, 249, 4_001, 10**12, 10**30, True, 1.5, "900", None, [900]])
def test_implausible_prompt_report_counts_as_estimated(prompt: Any) -> None:
    usage = read_usage({"prompt_tokens": prompt, "completion_tokens": 10}).credible(COUNTED, LONGEST)
    assert usage.recorded(COUNTED) == {"prompt": COUNTED, "completion": 10, "estimated": COUNTED}


@pytest.mark.parametrize("completion", [-5, 0, 24, 2_001, 10**12, False, "7", None])
def test_implausible_completion_report_counts_as_estimated(completion: Any) -> None:
    usage = read_usage({"prompt_tokens": 900, "completion_tokens": completion}, "x" * 300)
    recorded = usage.credible(COUNTED, LONGEST).recorded(COUNTED)
    assert recorded == {"prompt": 900, "completion": 100, "estimated": 100}


@pytest.mark.parametrize("reported", [None, "much", 7, [], {}, {"total_tokens": 5}])
def test_answer_without_a_report_is_estimated(reported: Any) -> None:
    usage = read_usage(reported, {"content": "words"}).credible(COUNTED, LONGEST)
    assert usage.recorded(COUNTED)["estimated"] == COUNTED + written({"content": "words"})


@given(st.integers(250, 4_000), st.integers(0, 2_000))
def test_credible_report_is_recorded_as_it_is(prompt: int, completion: int) -> None:
    usage = Usage(prompt, completion).credible(COUNTED, LONGEST)
    assert usage.recorded(COUNTED) == {"prompt": prompt, "completion": completion}


def test_answer_is_estimated_by_its_bytes() -> None:
    assert written("") == written(None) == 0
    assert written("漢字") == 2
