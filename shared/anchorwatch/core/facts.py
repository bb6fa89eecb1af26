"""Facts and observations: what is known about the real system, and what is unknown.

A fact is a number, a text, a boolean, or `UNKNOWN`. Unknown is a separate value: it equals no known
value, is never zero or false, and an invariant that needs an unknown fact refuses (INV-304).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

Fact = bool | int | float | str | None
"""None is *unknown* (JSON null, CEL null)."""

UNKNOWN: Final = None
Facts = Mapping[str, Fact]


@dataclass(frozen=True, slots=True)
class Observation:
    """The result of a pack's probes.

    ``text`` is for the model (a status line per instance); ``facts`` are the pack's named facts, each
    possibly unknown; ``data`` is the structured detail (JSON), for rules models and tools. ``digest``
    identifies this observation; commands cite it. ``at_ms`` Unix milliseconds; ``age_max_s``: how long a
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
        """The names of the unknown facts."""
        return tuple(name for name, value in self.facts.items() if value is None)
