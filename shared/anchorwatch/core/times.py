"""Instants as text and back. Machines hold Unix milliseconds; people and JSON get ISO 8601 in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from anchorwatch.core.errors import BadInput


def iso(at_ms: int) -> str:
    """Unix milliseconds as ``2026-03-17T18:56:43.163+00:00``."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


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
