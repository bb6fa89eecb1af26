"""Schedules: which session to wake when, and the progress so far."""

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
    """The request for a schedule. ``text``: the message to the session at each occurrence.

    ``missed``: whether missed slots become one occurrence or none. ``overlap``: whether an occurrence during a running turn
    is skipped or waits for its end (one at a time).
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
    """The results of the slots so far.

    ``made``: inputs for a turn. ``missed``: replaced by another one, or dropped. ``skipped``: a turn ran, or one was pending.
    """

    made: int = 0
    missed: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Owed:
    """A slot from before a pause that was not handled yet.

    ``missed``: the earlier slots that it replaces; ``first``: the first of these, or itself.
    """

    slot: datetime
    missed: int
    first: datetime


@dataclass(frozen=True, slots=True)
class Changed:
    """The last order for a schedule: by whom, when and why."""

    by: str
    at_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule, from its last record.

    ``schedule_id`` is new for each creation, also under a reused name. Every slot up to ``after``, which only grows, was
    handled, except ``owed``, from before a pause. ``last_slot``: the last one that became an input. ``sequence``: of the record.
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
        """Whether it can have another occurrence."""
        return self.state in LIVING
