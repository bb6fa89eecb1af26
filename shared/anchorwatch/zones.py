"""Time zones by their names, from the system's data or, where it has none, from the package ``tzdata``."""

from __future__ import annotations

import difflib
from datetime import tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from anchorwatch.core.errors import BadInput

EXAMPLES = "Europe/Berlin, America/New_York or UTC"
_OF_THE_MACHINE = frozenset({"localtime", "posixrules", "Factory"})
_OF_OTHER_CLOCKS = ("posix/", "right/")


def zone_asked(name: str) -> tzinfo:
    """As `zone_of`, where a person asks for it: a zone that is the same on every machine.

    Raises:
        BadInput: there is none of that name; or it is whatever a machine is set to, or counts leap seconds.
    """
    if name in _OF_THE_MACHINE or name.startswith(_OF_OTHER_CLOCKS):
        raise BadInput(
            f"{name[:80]!r} is not the same time on every machine", hint=f"name a place: {EXAMPLES}"
        )
    return zone_of(name)


def zone_of(name: str) -> tzinfo:
    """The zone of that name.

    Raises:
        BadInput: there is none.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = difflib.get_close_matches(name, available_timezones() - _OF_THE_MACHINE, n=1)
        hint = f"did you mean {near[0]}?" if near else f"for example {EXAMPLES}"
        raise BadInput(f"there is no time zone {name[:80]!r}", hint=hint) from None
