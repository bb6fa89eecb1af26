"""The evidence of a run: the records of a session, and independent counts of its effects and deliveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from anchorwatch.core.tools import EffectClass
from anchorwatch.journal.history import History
from anchorwatch.testing.harness import Kill

Promise = Literal["lost", "duplicated", "guessed"]


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise, and where the evidence shows it."""

    promise: Promise
    what: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"


@dataclass(frozen=True, slots=True)
class Call:
    """The calls of the provider under one effect key, as recorded outside the journal.

    ``begun``: the number of starts. ``ended``: the end of each start that has one (``returned``: done; ``failed``:
    certainly not done; ``raised``: uncertain). ``done``: the provider's own count of effects (None: it has none).
    """

    effect_key: str
    begun: int = 0
    ended: tuple[Literal["returned", "failed", "raised"], ...] = ()
    done: int | None = None
    tool: str = ""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Deliveries at one channel's receiver, counted by delivery id. ``deduplicates``: an id may arrive again."""

    channel: str
    seen: Mapping[str, int]
    deduplicates: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of one session.

    ``accepted``: the sequence in the receipt of each acknowledged input. ``events``: the input id of each acknowledged
    event. ``classes``: by tool. ``calls``: by effect key. ``arrivals``: at the channels for each turn's end. ``kills``:
    of processes, in order.
    """

    history: History = field(default_factory=History)
    accepted: Sequence[int] = ()
    events: Sequence[str] = ()
    classes: Mapping[str, EffectClass] = field(default_factory=dict)
    calls: Mapping[str, Call] = field(default_factory=dict)
    arrivals: Sequence[Arrivals] = ()
    kills: Sequence[Kill] = ()
