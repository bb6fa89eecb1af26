"""The kinds of damage to a record, and their consequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Trouble = Literal["unreadable", "newer", "misplaced", "odd", "gap", "twice", "lost"]
"""``unreadable``: truncated, altered, or without a required field. ``newer``: written by a newer release.

``misplaced``: of another kind or session than its register. ``odd``: readable, but in conflict with earlier records. ``gap``: it
does not follow the planner record before it. ``twice``: the second record of a register that is written once. ``lost``: missing
from the stream.
"""

CONSEQUENCES: Final[Mapping[str, str]] = {
    "in": "its content is unknown, and no turn can use it",
    "p.anchor": "a change of the session is unknown",
    "p.log": "a step, a summary or a snapshot of the conversation is unknown",
    "p.cmd": "the command is unknown, and cannot run",
    "fx.gate": "whether a person approved the command is unknown",
    "fx.claim": "which executor claimed the command, and whether it may have run, is unknown",
    "fx.done": "the outcome of the command is unknown",
    "ctl": "the receipt of an order is unknown; no decision depends on it",
    "late": "the evidence of a late result is lost; no decision depends on it",
    "art": "the name and origin of an artifact are unknown; no decision depends on them",
    "sent": "the outcome of a notification is unknown; no decision depends on it",
}
LOST_CONSEQUENCE: Final = "a record of this session or of another one is lost"


def lost_id(first: int, through: int) -> str:
    """The id of the finding that these sequences are lost."""
    return f"lost:{first}-{through}"


@dataclass(frozen=True, slots=True)
class Finding:
    """Damage at ``sequence`` (``lost``: through the sequence ``through``).

    ``register``: its register within the session. ``sha256``: the digest of the record, so that a person accepts exactly this
    damage.
    """

    sequence: int
    register: str
    kind: str
    trouble: Trouble
    what: str
    through: int = 0
    sha256: str = ""

    @property
    def id(self) -> str:
        """A stable id: another alteration of the same record is another finding."""
        if self.trouble == "lost":
            return lost_id(self.sequence, self.through)
        return f"{self.trouble}:{self.sequence}:{self.sha256[:16]}"

    @property
    def consequence(self) -> str:
        """The consequence without a repair."""
        if self.trouble == "lost":
            return LOST_CONSEQUENCE
        return CONSEQUENCES.get(self.kind, "its content is unknown")

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "id": self.id,
            "sequence": self.sequence,
            "through": self.through or self.sequence,
            "register": self.register,
            "trouble": self.trouble,
            "what": self.what,
            "consequence": self.consequence,
        }
