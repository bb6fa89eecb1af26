from __future__ import annotations

from math import prod

import pytest
from anchorwatch_fleet.factor import TooHard, factor, is_prime, primes_below
from hypothesis import given, settings
from hypothesis import strategies as st


def naive_is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def test_is_prime_agrees_with_trial_division_up_to_ten_thousand() -> None:
    assert [number for number in range(10_000) if is_prime(number)] == [
        number for number in range(10_000) if naive_is_prime(number)
    ]


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 10, 1000])
def test_primes_below_lists_exactly_the_primes(limit: int) -> None:
    assert primes_below(limit) == tuple(number for number in range(limit) if naive_is_prime(number))


@pytest.mark.parametrize(
    "number", [3215031751, 3825123056546413051, 318665857834031151167461, 3317044064679887385961981]
)
def test_strong_pseudoprimes_are_not_taken_for_primes(number: int) -> None:
    assert not is_prime(number)


@given(st.integers(1, 10**12))
@settings(deadline=None)
def test_factors_of_a_number_are_primes_whose_product_it_is(number: int) -> None:
    factors = factor(number)

    assert prod(prime**exponent for prime, exponent in factors.items()) == number
    assert all(naive_is_prime(prime) for prime in factors)


def test_square_of_a_large_prime_is_factored() -> None:
    assert factor(1_000_003**2) == {1_000_003: 2}


def test_number_that_would_take_too_long_is_abandoned() -> None:
    hard = (2**89 - 1) * (2**107 - 1)

    with pytest.raises(TooHard):
        factor(hard, rho_steps_max=5_000)
