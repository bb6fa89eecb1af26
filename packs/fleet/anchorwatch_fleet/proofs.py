"""Pratt certificates: a proof that a number is prime which anyone can check quickly.

A prime p is proved by a witness a of order p - 1: a^(p-1) = 1 and a^((p-1)/q) != 1 (mod p) for each prime q that divides
p - 1; each such q is proved in turn, down to 2. Making one means to factor p - 1, which costs; checking one costs little.
See Pratt, "Every prime has a succinct certificate" (1975), https://doi.org/10.1137/0204018.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from anchorwatch.packs import BadInput

from anchorwatch_fleet.factor import RHO_STEPS_MAX, factor, is_prime

PRIME_BITS_MAX = 512
STEPS_MAX = 2_000


class NotPrime(BadInput):
    """The number is not prime."""

    code = "not_prime"


class Step(NamedTuple):
    """The proof of one prime, given those of the factors of ``prime`` - 1 (each with its exponent)."""

    prime: int
    witness: int
    factors: tuple[tuple[int, int], ...]


class Certificate(NamedTuple):
    """The proof of ``prime``: a step for it and for every prime that it rests on; 2 needs none."""

    prime: int
    steps: tuple[Step, ...]


def certify(prime: int, rho_steps_max: int = RHO_STEPS_MAX) -> Certificate:
    """Prove that ``prime`` is prime.

    Raises:
        NotPrime: it is not.
        BadInput: it has more than 512 bits.
        TooHard: the factors of ``prime`` - 1, or of one below it, were not found with the allowed work.
    """
    if prime.bit_length() > PRIME_BITS_MAX:
        raise BadInput(
            f"a number of {prime.bit_length()} bits is too large", hint=f"at most {PRIME_BITS_MAX} bits"
        )
    if not is_prime(prime):
        raise NotPrime(f"{prime} is not prime")
    steps: dict[int, Step] = {}
    open_ = [prime]
    while open_:
        number = open_.pop()
        if number == 2 or number in steps:  # noqa: PLR2004 - where every proof ends
            continue
        factors = factor(number - 1, rho_steps_max)
        steps[number] = Step(number, _witness(number, factors), tuple(factors.items()))
        open_ += factors
    return Certificate(prime, tuple(steps[number] for number in sorted(steps, reverse=True)))


def _witness(prime: int, factors: Mapping[int, int]) -> int:
    for candidate in range(2, prime):
        if _is_witness(prime, candidate, factors):
            return candidate
    raise NotPrime(f"{prime} has no witness, so it is not prime")


def _is_witness(prime: int, candidate: int, factors: Mapping[int, int]) -> bool:
    return pow(candidate, prime - 1, prime) == 1 and all(
        pow(candidate, (prime - 1) // q, prime) != 1 for q in factors
    )


def verify(certificate: Certificate, prime: int) -> bool:
    """Whether ``certificate`` proves that ``prime`` is prime. It trusts nothing of the prover.

    A factor of p - 1 is smaller than p, so the proof cannot be circular.
    """
    if (
        certificate.prime != prime
        or not 1 < prime < 1 << PRIME_BITS_MAX
        or len(certificate.steps) > STEPS_MAX
    ):
        return False
    proved = {2, *(step.prime for step in certificate.steps)}
    return prime in proved and all(_holds(step, proved) for step in certificate.steps)


def _holds(step: Step, proved: set[int]) -> bool:
    """Whether a step follows, taking for granted that the primes in ``proved`` are proved by theirs."""
    prime, witness, factors = step
    if not 2 < prime < 1 << PRIME_BITS_MAX or not 1 < witness < prime:  # noqa: PLR2004 - 2 needs no step
        return False
    rest = prime - 1
    for q, exponent in factors:
        if q not in proved or not 1 <= exponent <= PRIME_BITS_MAX:
            return False
        for _ in range(exponent):
            rest, remainder = divmod(rest, q)
            if remainder:
                return False
    if rest != 1 or pow(witness, prime - 1, prime) != 1:
        return False
    return all(pow(witness, (prime - 1) // q, prime) != 1 for q, _ in factors)


def to_json(certificate: Certificate) -> dict[str, Any]:
    """As JSON. Numbers are decimal strings: most readers of JSON lose digits above 2**53."""
    return {
        "prime": str(certificate.prime),
        "steps": [
            {
                "prime": str(step.prime),
                "witness": str(step.witness),
                "factors": [[str(q), exponent] for q, exponent in step.factors],
            }
            for step in certificate.steps
        ],
    }


def from_json(value: Mapping[str, Any]) -> Certificate:
    """Read what `to_json` wrote.

    Raises:
        BadInput: it has a different form.
    """
    try:
        return Certificate(
            int(value["prime"]),
            tuple(
                Step(
                    int(step["prime"]),
                    int(step["witness"]),
                    tuple((int(q), int(e)) for q, e in step["factors"]),
                )
                for step in value["steps"]
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"this is not a certificate: {error!r}"[:200]) from None
