"""Waits between retries: bounded, growing, and spread."""

from __future__ import annotations

from anchorwatch.core.times import backoff_s
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(), st.floats(0.001, 10.0), st.floats(10.0, 600.0), st.floats(0.0, 1.0, exclude_max=True))
def test_backoff_is_within_its_bounds(failures: int, first_s: float, max_s: float, spread: float) -> None:
    wait_s = backoff_s(failures, first_s, max_s, spread)
    assert first_s / 2 <= wait_s <= max_s


@given(st.integers(1, 100), st.floats(0.0, 1.0, exclude_max=True))
def test_spread_backoff_is_at_least_half(failures: int, spread: float) -> None:
    longest_s = backoff_s(failures, 0.5, 60.0)
    assert longest_s / 2 <= backoff_s(failures, 0.5, 60.0, spread) <= longest_s


@given(st.integers(1, 100))
def test_backoff_never_shrinks_with_failures(failures: int) -> None:
    assert backoff_s(failures, 0.5, 60.0) <= backoff_s(failures + 1, 0.5, 60.0)
