"""Primes and factors of whole numbers, in plain Python. Deterministic: the same number costs the same work each time."""

from __future__ import annotations

from collections import Counter
from math import gcd, isqrt

from anchorwatch.packs import AnchorWatchError

TRIAL_PRIMES_BELOW = 1_000
RHO_STEPS_MAX = 40_000_000
_GCD_EVERY = 128
# The first 13 primes as bases decide every number below this bound (Sorenson and Webster, 2015).
_CERTAIN_BELOW = 3_317_044_064_679_887_385_961_981
_CERTAIN_BASES = 13
_PROBABLE_BASES = 24


class TooHard(AnchorWatchError):
    """The number has no factor that the allowed work can find."""

    code = "too_hard"


def primes_below(limit: int) -> tuple[int, ...]:
    """All primes below ``limit``, in order."""
    sieve = bytearray([1]) * max(limit, 2)
    sieve[:2] = b"\0\0"
    for number in range(2, isqrt(max(limit - 1, 0)) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, len(sieve), number)))
    return tuple(number for number in range(limit) if sieve[number])


TRIAL_PRIMES = primes_below(TRIAL_PRIMES_BELOW)


def is_prime(number: int) -> bool:
    """Whether ``number`` is prime: certain below 3.3e24, else wrong with a chance below 4**-24 (Miller and Rabin)."""
    if number < TRIAL_PRIMES_BELOW:
        return number in TRIAL_PRIMES
    if any(number % prime == 0 for prime in TRIAL_PRIMES):
        return False
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd //= 2
        twos += 1
    bases = _CERTAIN_BASES if number < _CERTAIN_BELOW else _PROBABLE_BASES
    return all(_passes(number, base, odd, twos) for base in TRIAL_PRIMES[:bases])


def _passes(number: int, base: int, odd: int, twos: int) -> bool:
    power = pow(base, odd, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False


def factor(number: int, rho_steps_max: int = RHO_STEPS_MAX) -> dict[int, int]:
    """The prime factors of a number above 0, each with its exponent, smallest first.

    Raises:
        TooHard: a composite part did not split within ``rho_steps_max`` steps of Pollard's rho.
    """
    found: Counter[int] = Counter()
    for prime in TRIAL_PRIMES:
        while number % prime == 0:
            found[prime] += 1
            number //= prime
    parts = [number] if number > 1 else []
    while parts:
        part = parts.pop()
        if is_prime(part):
            found[part] += 1
        else:
            divisor = _split(part, rho_steps_max)
            parts += [divisor, part // divisor]
    return dict(sorted(found.items()))


def _split(number: int, steps_max: int) -> int:
    """A divisor of an odd composite number, other than 1 and itself."""
    root = isqrt(number)
    if root * root == number:
        return root
    steps = 0
    for constant in range(1, number):
        divisor, used = _rho(number, constant, steps_max - steps)
        steps += used
        if 1 < divisor < number:
            return divisor
        if steps >= steps_max:
            break
    raise TooHard(f"a {number.bit_length()}-bit part did not split in {steps_max} steps")


def _rho(number: int, constant: int, steps_max: int) -> tuple[int, int]:
    """Pollard's rho as Brent runs it: (divisor or ``number`` itself when this constant fails, steps used)."""
    y, divisor, product, length, steps = 2, 1, 1, 1, 0
    x = saved = y
    while divisor == 1:
        x = y
        for _ in range(length):
            y = (y * y + constant) % number
        done = 0
        while done < length and divisor == 1:
            saved = y
            for _ in range(min(_GCD_EVERY, length - done)):
                y = (y * y + constant) % number
                product = product * abs(x - y) % number
            divisor = gcd(product, number)
            done += _GCD_EVERY
        steps += 2 * length
        if steps >= steps_max:
            break
        length *= 2
    if divisor == number:
        # Several factors fell into one product: walk the last stretch again, one step at a time.
        divisor = 1
        while divisor == 1:
            saved = (saved * saved + constant) % number
            divisor = gcd(abs(x - saved), number)
    return divisor, steps
