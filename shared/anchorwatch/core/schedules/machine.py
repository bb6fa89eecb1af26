"""What is to be done about a schedule, given the time and what its session is doing.

A slot is seen to once, for ever, since ``Schedule.after`` only grows. So a clock that is set back, a planner that is behind or a
change of the zone's clocks cannot bring one again; and none is passed over, since what follows ``after`` is always looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Literal

from anchorwatch.core.errors import Refused
from anchorwatch.core.schedules.cron import Cron
from anchorwatch.core.schedules.schedule import Changed, Counts, Definition, Schedule
from anchorwatch.core.schedules.zones import instant_of, reached

LATE_MS_MAX = 5 * 60_000
"""What is made this long after its instant, or sooner, was not missed."""
COUNTED_MAX = 1_000
"""Slots that were missed are counted up to here."""
LATE = "nobody could see to it in time, and the schedule's policy for what is missed is skip"
RUNNING = "a turn was running, and the schedule's overlap policy is skip"
WAITING = "an earlier occurrence of the schedule still waits"
DAMAGED = "the session's journal is damaged"

Settled = Literal["", "coalesced", "expired", "refused"]


@dataclass(frozen=True, slots=True)
class Sight:
    """What the session is doing: a turn runs (``running``), an earlier occurrence of this schedule has no turn yet (``waiting``).

    ``readable``: its journal can be read; where it cannot, neither of the others is known.
    """

    running: bool
    waiting: bool
    readable: bool = True


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A slot that is due, and what becomes of it: an input that waits for a turn, or (``settled``) that has its disposition.

    ``missed``: the slots before it that it stands for, counted up to `COUNTED_MAX`; ``first``: the first of these, or itself.
    """

    slot: datetime
    at_ms: int
    missed: int
    first: datetime
    settled: Settled = ""
    why: str = ""


def make(definition: Definition, schedule_id: str, zone: tzinfo, changed: Changed) -> Schedule:
    """A new schedule: its first slot is the first one that has not come yet."""
    return Schedule(definition, schedule_id, "active", reached(changed.at_ms, zone), changed)


def due(
    schedule: Schedule, cron: Cron, zone: tzinfo, now_ms: int, sight: Sight
) -> tuple[Occurrence, Schedule] | None:
    """The occurrence that is to be made now, and the schedule behind it; None: nothing is due."""
    if schedule.state != "active":
        return None
    slot = cron.at_or_before(reached(now_ms, zone))
    if slot is None or slot <= schedule.after:
        return None
    first, missed = _before(cron, schedule.after, slot)
    occurrence = Occurrence(slot, instant_of(slot, zone), missed, first)
    settled, why = _settled(schedule.definition, occurrence, now_ms, sight)
    return replace(occurrence, settled=settled, why=why), _seen_to(schedule, occurrence, settled)


def next_ms(schedule: Schedule, cron: Cron, zone: tzinfo) -> int | None:
    """When something is due next; None: never, as things stand."""
    if schedule.state != "active":
        return None
    slot = cron.following(schedule.after)
    return None if slot is None else instant_of(slot, zone)


def upcoming(cron: Cron, zone: tzinfo, after: datetime, count: int) -> list[tuple[datetime, int]]:
    """The next ``count`` occurrences: (slot, instant). Of slots that come at one instant the last one stands for all."""
    found: list[tuple[datetime, int]] = []
    for slot in cron.slots(after):
        at_ms = instant_of(slot, zone)
        if found and found[-1][1] == at_ms:
            found[-1] = (slot, at_ms)
        elif len(found) == count:
            break
        else:
            found.append((slot, at_ms))
    return found


def pause(schedule: Schedule, changed: Changed) -> Schedule:
    """The schedule, paused.

    Raises:
        Refused: it is not active.
    """
    if schedule.state != "active":
        raise Refused(f"the schedule {schedule.name} is {schedule.state}")
    return replace(schedule, state="paused", changed=changed)


def resume(schedule: Schedule, zone: tzinfo, changed: Changed) -> Schedule:
    """The schedule, active again. What came while it was paused is not made up for.

    Raises:
        Refused: it is not paused.
    """
    if schedule.state != "paused":
        raise Refused(f"the schedule {schedule.name} is {schedule.state}")
    after = max(schedule.after, reached(changed.at_ms, zone))
    return replace(schedule, state="active", after=after, changed=changed)


def delete(schedule: Schedule, changed: Changed) -> Schedule:
    """The schedule, deleted; an occurrence that was made already still has its turn.

    Raises:
        Refused: it is deleted.
    """
    if schedule.state == "deleted":
        raise Refused(f"the schedule {schedule.name} is deleted")
    return replace(schedule, state="deleted", changed=changed)


def end(schedule: Schedule, changed: Changed) -> Schedule:
    """The schedule, whose session is gone."""
    return replace(schedule, state="ended", changed=changed)


def _settled(
    definition: Definition, occurrence: Occurrence, now_ms: int, sight: Sight
) -> tuple[Settled, str]:
    if definition.missed == "skip" and now_ms - occurrence.at_ms > LATE_MS_MAX:
        return "expired", LATE
    if not sight.readable:
        return "refused", DAMAGED
    if sight.waiting:
        return "coalesced", WAITING
    if sight.running and definition.overlap == "skip":
        return "refused", RUNNING
    return "", ""


def _seen_to(schedule: Schedule, occurrence: Occurrence, settled: Settled) -> Schedule:
    counts = schedule.counts
    counts = Counts(
        made=counts.made + (not settled),
        missed=counts.missed + occurrence.missed + (settled == "expired"),
        skipped=counts.skipped + (settled in ("coalesced", "refused")),
    )
    last = schedule.last_slot if settled else occurrence.slot
    return replace(schedule, after=occurrence.slot, counts=counts, last_slot=last)


def _before(cron: Cron, after: datetime, slot: datetime) -> tuple[datetime, int]:
    """(the first slot behind ``after``, how many there are before ``slot``)."""
    first, count = slot, 0
    for each in cron.slots(after):
        if each >= slot or count == COUNTED_MAX:
            break
        first, count = min(first, each), count + 1
    return first, count
