"""Times as the server writes and reads them: RFC 3339, UTC. It writes nanoseconds; Python reads microseconds."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(at_ms: int) -> str:
    """Unix milliseconds as the server reads a time."""
    seconds, milliseconds = divmod(at_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"


def unix_ms(text: str) -> int:
    """The Unix milliseconds of a time in UTC, rounded down."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
    return seconds * 1000 + int(f"{fraction[:3]:0<3}")
