"""Emergencies: what an observation shows, and what a session remembers until it is over.

An emergency that was seen once stays open until an observation shows that it is over, or a person ends it (INV-706).
An observation that does not show either changes nothing: missing telemetry is unknown, never "over".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from pydantic import ConfigDict

from anchorwatch.core.times import iso

KIND_CHARS_MAX: Final = 80
WHAT_CHARS_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class Emergency:
    """What is wrong with the real system.

    ``kind``: names it, such as ``workers-dead``; as long as the kind is the same, it is the same emergency.
    ``what``: a sentence for people; its numbers may change.
    """

    kind: str
    what: str


Sighting = Emergency | Literal[False] | None
"""What facts show: an emergency; False: there is none; `UNKNOWN`: the facts do not show it."""


@dataclass(frozen=True, slots=True)
class OpenEmergency:
    """An emergency that is not over.

    ``since``: the time of the observation that raised it; ``last_seen_at``: of the last one that showed it.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    kind: str
    what: str
    since: str
    last_seen_at: str

    def __str__(self) -> str:
        return f"{self.what} (since {self.since}, as last seen at {self.last_seen_at})"


EmergencyChange = Literal["raised", "changed", "over"]


def observed(before: OpenEmergency | None, seen: Sighting, at_ms: int) -> OpenEmergency | None:
    """The open emergency after an observation at ``at_ms``; None: there is none."""
    if seen is None:
        return before
    if seen is False:
        return None
    return OpenEmergency(
        kind=_line(seen.kind, KIND_CHARS_MAX),
        what=_line(seen.what, WHAT_CHARS_MAX),
        since=before.since if before else iso(at_ms),
        last_seen_at=iso(at_ms),
    )


def change_of(before: OpenEmergency | None, after: OpenEmergency | None) -> EmergencyChange | None:
    """What people are notified of; None: it is the same emergency, or there is none."""
    if before is None:
        return "raised" if after else None
    if after is None:
        return "over"
    return "changed" if after.kind != before.kind else None


def _line(text: str, chars_max: int) -> str:
    """On one line, so that a prompt and a list can show it."""
    return " ".join(text.split())[:chars_max]
