"""Counts that follow reports: never below the endpoint's own, from its first report on."""

from __future__ import annotations

import json

import pytest
from anchorwatch.core.errors import Damaged
from anchorwatch.core.facts import Observation
from anchorwatch.models.corrected import UNPROVED_RATIO, CorrectedModel
from anchorwatch.models.correction import Correction, read_correction
from anchorwatch.models.port import (
    ContextOverflow,
    ModelReply,
    ModelRequest,
    OnRetry,
    Situation,
    StepDecision,
    ignore,
)
from anchorwatch.models.usage import CREDIBLE_RATIO, Usage
from hypothesis import given
from hypothesis import strategies as st

from tests.support.branches import reach, reaches

COUNTS = st.integers(50, 200_000)
REQUEST = ModelRequest((), (), Situation(1, {}, Observation("", {}, 0, ""), [], [], (), (), {}, 300))


# Whole tokens a quarter, so that no report is rounded.
QUARTERS = st.integers(10, 50_000).map(lambda n: 4 * n)


@given(st.integers(4, 8), st.integers(0, 50), QUARTERS, st.lists(QUARTERS, min_size=1, max_size=20))
def test_count_after_one_report_is_never_below_the_endpoint(
    per_four: int, per_request: int, first: int, later: list[int]
) -> None:
    def reports(counted: int) -> int:
        return counted * per_four // 4 + per_request

    correction = Correction().learned(first, reports(first))
    for counted in later:
        assert correction.applied(counted) >= reports(counted)


@given(COUNTS, st.lists(st.tuples(COUNTS, COUNTS), max_size=20))
def test_correction_only_grows_and_never_lowers_a_count(counted: int, reports: list[tuple[int, int]]) -> None:
    correction = Correction()
    before = correction.applied(counted)
    assert before == counted
    for pair in reports:
        correction = correction.learned(*pair)
        assert correction.applied(counted) >= before
        before = correction.applied(counted)


@reaches("kept")
@given(st.lists(st.tuples(COUNTS, COUNTS), max_size=5), st.lists(st.tuples(COUNTS, COUNTS), max_size=5))
def test_corrections_of_two_processes_are_merged_and_read_back(
    here: list[tuple[int, int]], there: list[tuple[int, int]]
) -> None:
    def learned(reports: list[tuple[int, int]]) -> Correction:
        correction = Correction()
        for pair in reports:
            correction = correction.learned(*pair)
        return correction

    both = learned(here).joined(learned(there))
    stored = read_correction(json.loads(json.dumps(both.to_json())))
    for counted, reported in here + there:
        if reported <= counted * CREDIBLE_RATIO:
            reach("kept")
            assert stored.applied(counted) >= reported


@pytest.mark.parametrize(
    ("counted", "reported"), [(0, 5), (100, 0), (100, -3), (100, 24), (100, 401), (100, 10**12)]
)
def test_report_that_cannot_be_of_this_request_teaches_nothing(counted: int, reported: int) -> None:
    assert Correction().learned(counted, reported) == Correction()


@pytest.mark.parametrize("value", [None, {}, {"ratio": 0.5, "excess": 0, "reports": 1}, {"ratio": "x"}])
def test_invalid_correction_is_ignored(value: object) -> None:
    with pytest.raises(Damaged):
        read_correction(value)


class Endpoint:
    """A model that counts 1,000, and reports or refuses as it is told."""

    name = "m"
    is_llm = True

    def __init__(self, answer: ModelReply | ContextOverflow) -> None:
        self.answer = answer

    def count(self, request: ModelRequest) -> int:
        assert request is REQUEST
        return 1_000

    async def complete(
        self, request: ModelRequest, deadline_s: float, on_retry: OnRetry = ignore
    ) -> ModelReply:
        del request, deadline_s, on_retry
        if isinstance(self.answer, ContextOverflow):
            raise self.answer
        return self.answer

    async def close(self) -> None: ...


async def test_quarter_above_the_count_is_followed_within_one_call() -> None:
    report: list[tuple[str, Correction]] = []
    answer = ModelReply(StepDecision("fine"), Usage(prompt_tokens=1_250))
    model = CorrectedModel(Endpoint(answer), Correction(), lambda name, found: report.append((name, found)))
    assert model.count(REQUEST) == 1_000 * UNPROVED_RATIO, "until the first report"
    await model.complete(REQUEST, 1.0)
    assert model.count(REQUEST) == 1_250
    await model.complete(REQUEST, 1.0)
    assert report == [("m", Correction(1.25, 250, 1))], "what changes nothing is not told again"


@pytest.mark.parametrize(("says", "counts"), [(1_310, 1_310), (None, 1_625)])
async def test_refusal_for_size_is_also_a_report(says: int | None, counts: int) -> None:
    refusal = ContextOverflow("too long", tokens=says)
    model = CorrectedModel(Endpoint(refusal), Correction(), lambda *_: None)
    with pytest.raises(ContextOverflow):
        await model.complete(REQUEST, 1.0)
    assert model.count(REQUEST) == counts
