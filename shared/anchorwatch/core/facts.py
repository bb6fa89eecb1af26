"""Facts and observations: what is known of the world, and what is plainly unknown.

A fact is a number, a text, a boolean, or `UNKNOWN`. Unknown is a value of its own: it equals nothing known, it
is never zero and never false, and an invariant that needs an unknown fact refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Fact = bool | int | float | str | None
"""None is *unknown* (JSON null, CEL null)."""

UNKNOWN: Fact = None
Facts = Mapping[str, Fact]


@dataclass(frozen=True, slots=True)
class Observation:
    """What a pack's probes saw.

    ``text`` is for the model (a status line per instance); ``facts`` are the pack's named facts, each
    possibly unknown; ``data`` is the structured detail (JSON), for rules models and tools. ``digest`` names
    exactly this observation; commands cite it. ``at_ms`` Unix milliseconds; ``age_max_s``: how long a
    mutating command may rely on it.
    """

    text: str
    facts: Facts
    at_ms: int
    digest: str
    age_max_s: float = 60.0
    data: Mapping[str, object] = field(default_factory=dict)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The names of the facts that are not known."""
        return tuple(name for name, value in self.facts.items() if value is None)
