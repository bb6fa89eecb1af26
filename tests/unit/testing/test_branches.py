from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.branches import reach, reaches


@reaches("even", "odd")
@given(st.integers())
def test_property_with_all_branches_passes(number: int) -> None:
    reach("odd" if number % 2 else "even")


@pytest.mark.slow  # `make quick` draws too few examples to require a branch
def test_property_without_a_branch_fails() -> None:
    @reaches("even", "odd")
    @given(st.just(2))
    def vacuous(number: int) -> None:
        reach("odd" if number % 2 else "even")

    with pytest.raises(AssertionError, match="no example reached: odd"):
        vacuous()
