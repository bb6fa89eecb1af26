"""Decides what happens to a schedule's slots, given the time and the activity of its session.

Each slot is handled once, because ``Schedule.after`` only grows (INV-805). So a clock that is set back, a slow planner or a clock
change of the zone cannot repeat a slot. None is skipped, because every slot after ``after`` is considered, and an order
that moves ``after`` or ends the schedule first accounts for the slots until then.
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
"""An occurrence at most this late was not missed."""
COUNTED_MAX = 1_000
"""Missed slots are counted up to this number."""
LATE = "it was handled too late, and the schedule's policy for missed slots is skip"
RUNNING = "a turn was running, and the schedule's overlap policy is skip"
WAITING = "an earlier occurrence of the schedule is still pending"
DAMAGED = "the session's journal is damaged"
_WAYS_OUT: dict[ScheduleState, str] = {
    "active": "it is active",
    "paused": "resume or delete it",
    "ended": "its session was deleted; delete the schedule to reuse its name",
    "deleted": "create it again: its name is free",
}

Settled = Literal["", "coalesced", "expired", "refused"]


@dataclass(frozen=True, slots=True)
class Sight:
    """The session's activity: a turn runs (``running``), an earlier occurrence of this schedule is pending (``waiting``).

    ``readable``: its journal can be read; otherwise the other two are unknown.
    """

    running: bool
    waiting: bool
    readable: bool = True


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A due slot and its result: an input for a turn, or (``settled``) an input that already has its disposition.

    ``missed``: the earlier slots that it replaces, counted up to `COUNTED_MAX`; ``first``: the first of these, or itself.
    """

    slot: datetime
    at_ms: int
    missed: int
    first: datetime
    settled: Settled = ""
    why: str = ""


def make(definition: Definition, schedule_id: str, zone: tzinfo, changed: Changed) -> Schedule:
    """A new schedule, which starts with the next slot."""
    return Schedule(definition, schedule_id, "active", reached(changed.at_ms, zone), changed)


def due(
    schedule: Schedule, cron: Cron, zone: tzinfo, now_ms: int, sight: Sight
) -> tuple[Occurrence, Schedule] | None:
    """The occurrence due now, and the schedule after it; None: nothing is due."""
    came = _came(schedule, cron, zone, now_ms)
    if came is None or instant_of(came.slot, zone) > now_ms:
        return None
    occurrence = Occurrence(came.slot, instant_of(came.slot, zone), came.missed, came.first)
    settled, why = _settled(schedule.definition, occurrence, now_ms, sight)
    return replace(occurrence, settled=settled, why=why), _seen_to(schedule, occurrence, settled)


def next_ms(schedule: Schedule, cron: Cron, zone: tzinfo) -> int | None:
    """When the next occurrence is due; None: never in this state."""
    if schedule.owed is not None:
        return instant_of(schedule.owed.slot, zone)
    if schedule.state != "active":
        return None
    slot = cron.following(schedule.after)
    return None if slot is None else instant_of(slot, zone)


def upcoming(cron: Cron, zone: tzinfo, after: datetime, count: int) -> list[tuple[datetime, int]]:
    """The next ``count`` occurrences: (slot, instant). Of slots with the same instant only the last is listed."""
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
    """The paused schedule. It still owes earlier slots that were not handled.

    Raises:
        Refused: it is not active.
    """
    if schedule.state != "active":
        raise _unfit(schedule)
    owed = _came(schedule, cron, zone, changed.at_ms)
    after = max(schedule.after, owed.slot) if owed else schedule.after
    return replace(schedule, state="paused", after=after, owed=owed, changed=changed)


def resume(schedule: Schedule, zone: tzinfo, changed: Changed) -> Schedule:
    """The resumed schedule. Slots during the pause are skipped; an owed slot from before is not.

    Raises:
        Refused: it is not paused.
    """
    if schedule.state != "paused":
        raise _unfit(schedule)
    after = max(schedule.after, reached(changed.at_ms, zone))
    return replace(schedule, state="active", after=after, changed=changed)


def delete(schedule: Schedule, cron: Cron, zone: tzinfo, changed: Changed) -> Schedule:
    """The deleted schedule. A pending occurrence still gets its turn; unhandled slots count as missed.

    Raises:
        Refused: it is deleted.
    """
    if schedule.state == "deleted":
        raise _unfit(schedule)
    return _over(schedule, "deleted", cron, zone, changed)


def end(schedule: Schedule, cron: Cron, zone: tzinfo, changed: Changed) -> Schedule:
    """The schedule of a deleted session. Unhandled slots count as missed."""
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
    """The last unhandled slot, which replaces the earlier ones."""
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
    """(the first slot after ``after``, the number of slots before ``slot``)."""
    first, count = slot, 0
    for each in cron.slots(after):
        if each >= slot or count == COUNTED_MAX:
            break
        first, count = min(first, each), count + 1
    return first, count
