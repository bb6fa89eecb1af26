"""Time zones by name, from the system's data or from the package ``tzdata``."""

from __future__ import annotations

import difflib
from datetime import tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from anchorwatch.core.errors import BadInput

EXAMPLES = "Europe/Berlin, America/New_York or UTC"
_OF_THE_MACHINE = frozenset({"localtime", "posixrules", "Factory"})
_OF_OTHER_CLOCKS = ("posix/", "right/")


def zone_asked(name: str) -> tzinfo:
    """As `zone_of`, for a person's input: only zones with one meaning on every machine.

    Raises:
        BadInput: the zone is unknown, depends on the machine's setting, or counts leap seconds.
    """
    if name in _OF_THE_MACHINE or name.startswith(_OF_OTHER_CLOCKS):
        raise BadInput(
            f"{name[:80]!r} does not have one meaning on every machine", hint=f"name a place: {EXAMPLES}"
        )
    return zone_of(name)


def zone_of(name: str) -> tzinfo:
    """The named zone.

    Raises:
        BadInput: the zone is unknown.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = difflib.get_close_matches(name, available_timezones() - _OF_THE_MACHINE, n=1)
        hint = f"did you mean {near[0]}?" if near else f"for example {EXAMPLES}"
        raise BadInput(f"unknown time zone {name[:80]!r}", hint=hint) from None
