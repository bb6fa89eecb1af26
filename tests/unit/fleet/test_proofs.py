from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from anchorwatch.core.errors import BadInput
from anchorwatch_fleet.factor import is_prime
from anchorwatch_fleet.proofs import Certificate, NotPrime, Step, certify, from_json, to_json, verify
from hypothesis import assume, given, settings
from hypothesis import strategies as st

PRIMES = st.integers(2, 2**48).map(lambda start: next(n for n in range(start, start + 2000) if is_prime(n)))
P = 1_000_000_007


@given(PRIMES)
@settings(deadline=None)
def test_certificate_of_every_prime_holds_also_through_json(prime: int) -> None:
    certificate = certify(prime)

    assert verify(certificate, prime)
    assert from_json(json.loads(json.dumps(to_json(certificate)))) == certificate


@given(st.integers(-5, 2**40))
@settings(deadline=None)
def test_number_that_is_not_prime_gets_no_certificate(number: int) -> None:
    assume(not is_prime(number))

    with pytest.raises(NotPrime):
        certify(number)


@given(PRIMES, PRIMES)
@settings(deadline=None)
def test_certificate_proves_no_other_number(prime: int, other: int) -> None:
    assume(prime != other)

    assert not verify(certify(prime), other)


@given(PRIMES.filter(lambda prime: prime > 3), st.data())
@settings(deadline=None)
def test_certificate_with_a_step_left_out_does_not_hold(prime: int, data: st.DataObject) -> None:
    certificate = certify(prime)
    gone = data.draw(st.sampled_from(certificate.steps))
    steps = tuple(step for step in certificate.steps if step is not gone)

    assert not verify(certificate._replace(steps=steps), prime)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda step: step._replace(witness=1), id="witness one"),
        pytest.param(lambda step: step._replace(witness=P - 1), id="witness of order two"),
        pytest.param(lambda step: step._replace(factors=step.factors[1:]), id="a factor is missing"),
        pytest.param(lambda step: step._replace(factors=(*step.factors, (3, 1))), id="a factor too many"),
        pytest.param(lambda step: step._replace(factors=((P - 1, 1),)), id="a factor that nobody proved"),
        pytest.param(lambda step: step._replace(factors=((2, 10**9),)), id="an exponent without end"),
        pytest.param(
            lambda step: step._replace(factors=((2, -1), *step.factors[1:])), id="an exponent below zero"
        ),
    ],
)
def test_altered_step_invalidates_the_certificate(spoil: Callable[[Step], Step]) -> None:
    certificate = certify(P)
    steps = tuple(spoil(step) if step.prime == P else step for step in certificate.steps)

    assert not verify(certificate._replace(steps=steps), P)


def test_composite_number_has_no_proof_by_circular_steps() -> None:
    steps = (Step(9, 2, ((2, 3),)), Step(4, 3, ((3, 1),)), Step(3, 2, ((2, 1),)))

    assert not verify(Certificate(9, steps), 9)


def test_two_needs_no_step() -> None:
    assert certify(2) == Certificate(2, ())
    assert verify(Certificate(2, ()), 2)


def test_number_of_more_than_512_bits_is_refused() -> None:
    with pytest.raises(BadInput, match="521 bits"):
        certify(2**521 - 1)


@pytest.mark.parametrize(
    "value", [{}, {"prime": "x", "steps": []}, {"prime": "7", "steps": [{"prime": "7"}]}]
)
def test_invalid_certificate_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="not a certificate"):
        from_json(value)
