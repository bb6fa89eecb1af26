"""What a schedule is: who is to be woken when, and how far that has been done."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, get_args

Missed = Literal["one", "skip"]
Overlap = Literal["skip", "queue-one"]
ScheduleState = Literal["active", "paused", "ended", "deleted"]
MISSED: tuple[Missed, ...] = get_args(Missed)
OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)
STATES: tuple[ScheduleState, ...] = get_args(ScheduleState)
LIVING: tuple[ScheduleState, ...] = ("active", "paused")


@dataclass(frozen=True, slots=True)
class Definition:
    """What was asked for. ``text``: what the session is told at each occurrence.

    ``missed``: of what fell due while nobody could see to it, one occurrence is made up for, or none. ``overlap``: an occurrence
    during a running turn is skipped, or waits for its end, one at a time.
    """

    workspace: str
    name: str
    session: str
    cron: str
    zone: str
    text: str = ""
    missed: Missed = "one"
    overlap: Overlap = "skip"


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the slots so far.

    ``made``: inputs for a turn to take. ``missed``: another one stood for them, or none. ``skipped``: a turn ran, or one waited.
    """

    made: int = 0
    missed: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Owed:
    """A slot that came while the schedule was active, and that nobody has seen to yet.

    ``missed``: the slots before it that it stands for; ``first``: the first of these, or itself.
    """

    slot: datetime
    missed: int
    first: datetime


@dataclass(frozen=True, slots=True)
class Changed:
    """The last order about a schedule: who gave it, when and why."""

    by: str
    at_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as its last record says.

    ``schedule_id`` is new with each making, also under a name that was used before. Every slot up to ``after`` has been seen to,
    for ever: it only grows. ``owed``: but this one, which came before a pause, is still to be seen to. ``last_slot``: the last
    one that was made an input. ``sequence``: of the record.
    """

    definition: Definition
    schedule_id: str
    state: ScheduleState
    after: datetime
    changed: Changed
    counts: Counts = field(default_factory=Counts)
    last_slot: datetime | None = None
    owed: Owed | None = None
    sequence: int = 0

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def living(self) -> bool:
        """Whether it may ever come to an occurrence again."""
        return self.state in LIVING
