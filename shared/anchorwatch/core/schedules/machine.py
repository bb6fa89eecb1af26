"""What is to be done about a schedule, given the time and what its session is doing.

A slot is seen to once, for ever, since ``Schedule.after`` only grows. So a clock that is set back, a planner that is behind or a
change of the zone's clocks cannot bring one again; and none is passed over, since what follows ``after`` is always looked at,
and an order that moves ``after`` or ends the schedule first takes account of what had come by then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Literal

from anchorwatch.core.errors import Refused
from anchorwatch.core.schedules.cron import Cron
from anchorwatch.core.schedules.schedule import Changed, Counts, Definition, Owed, Schedule, ScheduleState
from anchorwatch.core.schedules.zones import instant_of, reached

LATE_MS_MAX = 5 * 60_000
"""What is made this long after its instant, or sooner, was not missed."""
COUNTED_MAX = 1_000
"""Slots that were missed are counted up to here."""
LATE = "nobody could see to it in time, and the schedule's policy for what is missed is skip"
RUNNING = "a turn was running, and the schedule's overlap policy is skip"
WAITING = "an earlier occurrence of the schedule still waits"
DAMAGED = "the session's journal is damaged"
_WAYS_OUT: dict[ScheduleState, str] = {
    "active": "nothing is left to do: it goes on by itself",
    "paused": "nothing is left to do, until you resume or delete it",
    "ended": "its session is gone; delete it, and its name can be used again",
    "deleted": "make it anew: its name can be used again",
}

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
    came = _came(schedule, cron, zone, now_ms)
    if came is None or instant_of(came.slot, zone) > now_ms:
        return None
    occurrence = Occurrence(came.slot, instant_of(came.slot, zone), came.missed, came.first)
    settled, why = _settled(schedule.definition, occurrence, now_ms, sight)
    return replace(occurrence, settled=settled, why=why), _seen_to(schedule, occurrence, settled)


def next_ms(schedule: Schedule, cron: Cron, zone: tzinfo) -> int | None:
    """When something is due next; None: never, as things stand."""
    if schedule.owed is not None:
        return instant_of(schedule.owed.slot, zone)
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


def pause(schedule: Schedule, cron: Cron, zone: tzinfo, changed: Changed) -> Schedule:
    """The schedule, paused. What came before, and was not seen to yet, it still owes.

    Raises:
        Refused: it is not active.
    """
    if schedule.state != "active":
        raise _unfit(schedule)
    owed = _came(schedule, cron, zone, changed.at_ms)
    after = max(schedule.after, owed.slot) if owed else schedule.after
    return replace(schedule, state="paused", after=after, owed=owed, changed=changed)


def resume(schedule: Schedule, zone: tzinfo, changed: Changed) -> Schedule:
    """The schedule, active again. What came while it was paused is not made up for; what it owes from before is.

    Raises:
        Refused: it is not paused.
    """
    if schedule.state != "paused":
        raise _unfit(schedule)
    after = max(schedule.after, reached(changed.at_ms, zone))
    return replace(schedule, state="active", after=after, changed=changed)


def delete(schedule: Schedule, cron: Cron, zone: tzinfo, changed: Changed) -> Schedule:
    """The schedule, deleted; an occurrence that was made already still has its turn. What came and was not seen to is missed.

    Raises:
        Refused: it is deleted.
    """
    if schedule.state == "deleted":
        raise _unfit(schedule)
    return _over(schedule, "deleted", cron, zone, changed)


def end(schedule: Schedule, cron: Cron, zone: tzinfo, changed: Changed) -> Schedule:
    """The schedule, whose session is gone. What came and was not seen to is missed."""
    return _over(schedule, "ended", cron, zone, changed)


def _over(schedule: Schedule, state: ScheduleState, cron: Cron, zone: tzinfo, changed: Changed) -> Schedule:
    came = _came(schedule, cron, zone, changed.at_ms)
    if came is not None:
        counts = replace(schedule.counts, missed=schedule.counts.missed + came.missed + 1)
        schedule = replace(schedule, after=max(schedule.after, came.slot), counts=counts, owed=None)
    return replace(schedule, state=state, changed=changed)


def _unfit(schedule: Schedule) -> Refused:
    return Refused(f"the schedule {schedule.name} is {schedule.state}", hint=_WAYS_OUT[schedule.state])


def _came(schedule: Schedule, cron: Cron, zone: tzinfo, now_ms: int) -> Owed | None:
    """What has come and was not seen to: its last slot, which stands for those before it."""
    owed = schedule.owed
    slot = cron.at_or_before(reached(now_ms, zone)) if schedule.state == "active" else None
    if slot is None or slot <= schedule.after:
        return owed
    first, missed = _before(cron, schedule.after, slot)
    return Owed(slot, missed + owed.missed + 1, owed.first) if owed else Owed(slot, missed, first)


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
    after = max(schedule.after, occurrence.slot)
    return replace(schedule, after=after, counts=counts, last_slot=last, owed=None)


def _before(cron: Cron, after: datetime, slot: datetime) -> tuple[datetime, int]:
    """(the first slot behind ``after``, how many there are before ``slot``)."""
    first, count = slot, 0
    for each in cron.slots(after):
        if each >= slot or count == COUNTED_MAX:
            break
        first, count = min(first, each), count + 1
    return first, count
