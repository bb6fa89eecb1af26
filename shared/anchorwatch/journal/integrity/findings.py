"""What can be wrong with a record, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Trouble = Literal["unreadable", "newer", "misplaced", "odd", "gap", "twice", "lost"]
"""``unreadable``: cut, altered, or without what its kind must hold. ``newer``: of a release that this one is not.

``misplaced``: of a kind or a session that its register is not for. ``odd``: whole, and against the rules of what stands
before it. ``gap``: it does not follow the planner record before it. ``twice``: in a register that is written once.
``lost``: gone from the stream.
"""

CONSEQUENCES: Final[Mapping[str, str]] = {
    "in": "what was said in it is not known, and no turn can take it",
    "p.anchor": "what changed the session then is not known",
    "p.log": "a step, a summary or a snapshot of the conversation is not known",
    "p.cmd": "what was decided is not known, and cannot be run",
    "fx.gate": "whether a person was asked, and what they said, is not known",
    "fx.claim": "who took up the command, and whether it may have run, is not known",
    "fx.done": "what became of the command is not known",
    "ctl": "the receipt of an order is not known; nothing is decided on it",
    "late": "the evidence of a late result is lost; nothing is decided on it",
    "art": "what the artifact is, and where it comes from, is not known; nothing is decided on it",
    "sent": "what became of the notification is not known; nothing is decided on it",
}
LOST_CONSEQUENCE: Final = "a record of this session or of another is gone, whatever it said"


def lost_id(first: int, through: int) -> str:
    """Names the loss of these sequences."""
    return f"lost:{first}-{through}"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something is wrong at ``sequence`` (``lost``: from there to ``through``).

    ``register``: where it stands, below its session. ``sha256``: of the record's bytes, so that what a person has
    accepted is exactly this.
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
        """Names it for ever: another change of the same record is another finding."""
        if self.trouble == "lost":
            return lost_id(self.sequence, self.through)
        return f"{self.trouble}:{self.sequence}:{self.sha256[:16]}"

    @property
    def consequence(self) -> str:
        """What follows from it, as long as nothing is done about it."""
        if self.trouble == "lost":
            return LOST_CONSEQUENCE
        return CONSEQUENCES.get(self.kind, "what it says is not known")

    def to_json(self) -> dict[str, Any]:
        """As programs get it."""
        return {
            "id": self.id,
            "sequence": self.sequence,
            "through": self.through or self.sequence,
            "register": self.register,
            "trouble": self.trouble,
            "what": self.what,
            "consequence": self.consequence,
        }
