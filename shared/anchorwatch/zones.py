"""Time zones by their names, from the system's data or, where it has none, from the package ``tzdata``."""

from __future__ import annotations

import difflib
from datetime import tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from anchorwatch.core.errors import BadInput


def zone_of(name: str) -> tzinfo:
    """The zone of that name.

    Raises:
        BadInput: there is none.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = difflib.get_close_matches(name, available_timezones(), n=1)
        hint = f"did you mean {near[0]}?" if near else "for example Europe/Berlin, America/New_York or UTC"
        raise BadInput(f"there is no time zone {name[:80]!r}", hint=hint) from None
