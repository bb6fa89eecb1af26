"""What a run left behind: the records of a session, and what was counted outside the journal."""

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
    """A promise that was broken, and where it can be seen."""

    promise: Promise
    what: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"


@dataclass(frozen=True, slots=True)
class Call:
    """What was asked of the real system under one effect key, as somebody outside the journal noted it.

    ``begun``: how often the tool was started; ``ended``: how each start that came to an end did (``returned``: it did it;
    ``failed``: certainly not; ``raised``: who knows); ``done``: how often it was really done, by the real system's own books
    (None: it cannot say).
    """

    effect_key: str
    begun: int = 0
    ended: tuple[Literal["returned", "failed", "raised"], ...] = ()
    done: int | None = None


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What one channel's receiver saw: delivery id by delivery id, how often. ``deduplicates``: it may see one id again."""

    channel: str
    seen: Mapping[str, int]
    deduplicates: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """All of it, of one session.

    ``accepted``: for every input that was acknowledged to its sender, the journal sequence in its receipt; ``events``: for every
    event that was, what its input must be called. ``classes``: of each tool; ``calls``: by effect key. ``arrivals``: of the
    channels that are told of every turn's end. ``kills``: of processes, in order.
    """

    history: History = field(default_factory=History)
    accepted: Sequence[int] = ()
    events: Sequence[str] = ()
    classes: Mapping[str, EffectClass] = field(default_factory=dict)
    calls: Mapping[str, Call] = field(default_factory=dict)
    arrivals: Sequence[Arrivals] = ()
    kills: Sequence[Kill] = ()
