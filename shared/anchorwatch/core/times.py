"""Instants and delays. Machines hold Unix milliseconds; people and JSON get ISO 8601 in UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from anchorwatch.core.errors import BadInput

MS_MIN: Final = -62_135_596_800_000
"""The first instant of the year 1, Unix milliseconds."""
MS_MAX: Final = 253_402_300_799_000
"""The last second of the year 9999."""


def instant(at_ms: int) -> datetime:
    """Unix milliseconds as an instant in UTC, clamped to the years 1 to 9999."""
    return datetime.fromtimestamp(min(max(at_ms, MS_MIN), MS_MAX) / 1000, UTC)


def left_ms(until_ms: int, now_ms: int, longest_ms: int) -> int:
    """The remaining milliseconds of a wait until ``until_ms`` that never lasts longer than ``longest_ms``.

    A longer remainder means that the clock was set back after ``until_ms`` was recorded: then the wait is over (INV-801).
    """
    left = until_ms - now_ms
    return left if 0 < left <= longest_ms else 0


def backoff_s(failures: int, first_s: float, max_s: float, spread: float = 0.0) -> float:
    """Seconds to wait after ``failures`` failures in a row: ``first_s``, doubled with each failure, at most ``max_s``.

    ``spread``, in [0, 1), shortens the wait by up to half: processes that failed together do not retry together.

    >>> [backoff_s(failures, 1.0, 5.0) for failures in (1, 2, 3, 4, 2000)]
    [1.0, 2.0, 4.0, 5.0, 5.0]
    >>> backoff_s(2, 1.0, 5.0, spread=0.5)
    1.5
    """
    # The exponent is bounded too: 2.0 ** 2000 is not a float.
    doublings = min(max(failures - 1, 0), 32)
    return min(first_s * 2.0**doublings, max_s) * (1 - spread / 2)


def iso(at_ms: int) -> str:
    """Unix milliseconds as ``2026-03-17T18:56:43.163+00:00``; clamped as `instant` is, so it never raises."""
    return instant(at_ms).isoformat(timespec="milliseconds")


def from_iso(text: str) -> int:
    """ISO 8601 with an offset, as Unix milliseconds.

    Raises:
        BadInput: it is not an ISO 8601 instant, or has no offset.
    """
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(
            f"{text[:80]!r} is not an ISO 8601 instant", hint="for example 2026-03-17T18:56:43+00:00"
        ) from None
    if instant.tzinfo is None:
        raise BadInput(f"{text[:80]!r} has no offset from UTC", hint="add Z or +00:00")
    return round(instant.timestamp() * 1000)
