"""Instants as text and back. Machines hold Unix milliseconds; people and JSON get ISO 8601 in UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from anchorwatch.core.errors import BadInput

MS_MIN: Final = -62_135_596_800_000
"""The first instant of the year 1, Unix milliseconds."""
MS_MAX: Final = 253_402_300_799_000
"""The last second of the year 9999."""


def instant(at_ms: int) -> datetime:
    """Unix milliseconds as an instant in UTC; what no calendar has is the first or the last instant that it does have."""
    return datetime.fromtimestamp(min(max(at_ms, MS_MIN), MS_MAX) / 1000, UTC)


def left_ms(until_ms: int, now_ms: int, longest_ms: int) -> int:
    """What is left of a wait that was to end at ``until_ms`` by the clock, and that is never longer than ``longest_ms``.

    What would be more was written down by a clock that has been set back since: nothing is left.
    """
    left = until_ms - now_ms
    return left if 0 < left <= longest_ms else 0


def iso(at_ms: int) -> str:
    """Unix milliseconds as ``2026-03-17T18:56:43.163+00:00``; clamped as `instant` is, so it never raises."""
    return instant(at_ms).isoformat(timespec="milliseconds")


def from_iso(text: str) -> int:
    """ISO 8601 with an offset, as Unix milliseconds.

    Raises:
        BadInput: it is no such text, or has no offset.
    """
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(
            f"{text[:80]!r} is no ISO 8601 instant", hint="for example 2026-03-17T18:56:43+00:00"
        ) from None
    if instant.tzinfo is None:
        raise BadInput(f"{text[:80]!r} has no offset from UTC", hint="add Z or +00:00")
    return round(instant.timestamp() * 1000)
