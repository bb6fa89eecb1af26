"""A schedule is seen to slot by slot: none twice, none passed over, whatever clocks and planners do."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import takewhile
from typing import Literal

import pytest
from anchorwatch.core.errors import Refused
from anchorwatch.core.schedules import machine
from anchorwatch.core.schedules.cron import Cron
from anchorwatch.core.schedules.machine import Occurrence, Sight
from anchorwatch.core.schedules.schedule import Changed, Counts, Definition, Missed, Overlap, Schedule
from anchorwatch.core.schedules.zones import instant_of, read_slot, slot_text
from anchorwatch.zones import zone_of
from hypothesis import given, settings
from hypothesis import strategies as st

FREE = Sight(running=False, waiting=False)
HOUR_MS = 3_600_000


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def made(
    cron: str, zone: str, now: str | int, *, missed: Missed = "one", overlap: Overlap = "skip"
) -> Schedule:
    definition = Definition("default", "n", "s", cron, zone, missed=missed, overlap=overlap)
    now_ms = at(now) if isinstance(now, str) else now
    return machine.make(definition, "c-1", zone_of(zone), Changed("ada", now_ms))


def look(schedule: Schedule, now: str | int, sight: Sight = FREE) -> tuple[Occurrence | None, Schedule]:
    definition = schedule.definition
    now_ms = at(now) if isinstance(now, str) else now
    found = machine.due(schedule, Cron.parse(definition.cron), zone_of(definition.zone), now_ms, sight)
    return found or (None, schedule)


def test_first_slot_is_the_first_one_after_its_creation() -> None:
    schedule = made("0 9 * * *", "UTC", "2026-01-01T09:00:00")
    assert look(schedule, "2026-01-02T08:59:59.999")[0] is None
    occurrence, _ = look(schedule, "2026-01-02T09:00")
    assert occurrence is not None
    assert slot_text(occurrence.slot) == "2026-01-02T09:00"


def test_schedule_made_in_a_repeated_hour_begins_after_that_hour() -> None:
    # 02:10 for the second time: 02:30 was an hour ago.
    schedule = made("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10")
    assert look(schedule, "2026-10-25T01:40")[0] is None
    occurrence, _ = look(schedule, "2026-10-26T01:30")
    assert occurrence is not None
    assert slot_text(occurrence.slot) == "2026-10-26T02:30"


def test_missed_slots_are_made_up_for_once() -> None:
    schedule = made("0 * * * *", "UTC", "2026-01-01T00:30")
    occurrence, after = look(schedule, "2026-01-01T06:10")
    assert occurrence is not None
    assert (slot_text(occurrence.slot), slot_text(occurrence.first)) == (
        "2026-01-01T06:00",
        "2026-01-01T01:00",
    )
    assert (occurrence.missed, occurrence.settled) == (5, "")
    assert after.counts == Counts(made=1, missed=5)
    assert look(after, "2026-01-01T06:59:59")[0] is None


def test_missed_slots_expire_under_skip_but_a_late_one_is_run() -> None:
    schedule = made("0 * * * *", "UTC", "2026-01-01T00:30", missed="skip")
    occurrence, after = look(schedule, "2026-01-01T06:10")
    assert occurrence is not None
    assert (occurrence.settled, occurrence.missed) == ("expired", 5)
    assert after.counts == Counts(missed=6)
    assert after.last_slot is None
    occurrence, after = look(after, "2026-01-01T07:04")
    assert occurrence is not None
    assert occurrence.settled == ""
    assert after.last_slot == read_slot("2026-01-01T07:00")


def test_year_of_missed_slots_is_counted_up_to_a_bound() -> None:
    schedule = made("* * * * *", "UTC", "2026-01-01T00:30")
    occurrence, after = look(schedule, "2027-01-01T00:30")
    assert occurrence is not None
    assert occurrence.missed == machine.COUNTED_MAX
    assert after.after == read_slot("2027-01-01T00:30")


@pytest.mark.parametrize(
    ("overlap", "sight", "settled"),
    [
        ("skip", Sight(running=True, waiting=False), "refused"),
        ("queue-one", Sight(running=True, waiting=False), ""),
        ("skip", Sight(running=True, waiting=True), "coalesced"),
        ("queue-one", Sight(running=True, waiting=True), "coalesced"),
        ("skip", Sight(running=False, waiting=True), "coalesced"),
    ],
)
def test_overlap_policy_decides_during_a_turn_and_one_slot_waits(
    overlap: Overlap, sight: Sight, settled: str
) -> None:
    schedule = made("0 * * * *", "UTC", "2026-01-01T00:30", overlap=overlap)
    occurrence, after = look(schedule, "2026-01-01T01:00", sight)
    assert occurrence is not None
    assert occurrence.settled == settled
    assert bool(occurrence.why) == bool(settled)
    assert after.counts == (Counts(skipped=1) if settled else Counts(made=1))


def test_clock_set_back_repeats_no_slot_and_forward_loses_none() -> None:
    schedule = made("*/30 * * * *", "UTC", "2026-01-01T00:10")
    occurrence, schedule = look(schedule, "2026-01-01T01:31")
    assert occurrence is not None
    assert occurrence.missed == 2
    for now in ("2026-01-01T00:31", "2026-01-01T01:00", "2026-01-01T01:59"):
        assert look(schedule, now)[0] is None
    occurrence, _ = look(schedule, "2026-01-01T02:00")
    assert occurrence is not None
    assert occurrence.missed == 0


Verb = Literal["pause", "resume", "delete", "end"]


def order(schedule: Schedule, verb: Verb, now: str | int) -> Schedule:
    cron, zone = Cron.parse(schedule.definition.cron), zone_of(schedule.definition.zone)
    changed = Changed("ada", at(now) if isinstance(now, str) else now)
    if verb == "resume":
        return machine.resume(schedule, zone, changed)
    does = {"pause": machine.pause, "delete": machine.delete, "end": machine.end}[verb]
    return does(schedule, cron, zone, changed)


def test_slots_during_a_pause_are_not_made_up_for() -> None:
    schedule = made("0 * * * *", "UTC", "2026-01-01T00:30")
    paused = order(schedule, "pause", "2026-01-01T00:40")
    assert look(paused, "2026-01-01T05:00")[0] is None
    assert machine.next_ms(paused, Cron.parse("0 * * * *"), zone_of("UTC")) is None
    resumed = order(paused, "resume", "2026-01-01T05:10")
    assert look(resumed, "2026-01-01T05:10")[0] is None
    occurrence, _ = look(resumed, "2026-01-01T06:00")
    assert occurrence is not None
    assert occurrence.missed == 0


@pytest.mark.parametrize("resumed", [False, True])
def test_slot_before_a_pause_is_handled_once_after_it(resumed: bool) -> None:  # noqa: FBT001
    schedule = made("* * * * *", "UTC", "2026-01-01T00:00:59")
    schedule = order(schedule, "pause", "2026-01-01T00:02:03")
    if resumed:
        schedule = order(schedule, "resume", "2026-01-01T00:02:04")
    assert machine.next_ms(schedule, Cron.parse("* * * * *"), zone_of("UTC")) == at("2026-01-01T00:02")
    occurrence, schedule = look(schedule, "2026-01-01T00:02:10")
    assert occurrence is not None
    assert (occurrence.slot, occurrence.first) == (
        read_slot("2026-01-01T00:02"),
        read_slot("2026-01-01T00:01"),
    )
    assert (occurrence.missed, occurrence.settled) == (1, "")
    assert schedule.counts == Counts(made=1, missed=1)
    assert look(schedule, "2026-01-01T00:02:30")[0] is None
    occurrence, _ = look(schedule, "2026-01-01T00:03")
    assert (occurrence is not None) == resumed


def test_slots_before_several_pauses_are_one_combined_occurrence() -> None:
    schedule = made("0 * * * *", "UTC", "2026-01-01T00:30")
    for hour in (2, 6):
        schedule = order(schedule, "pause", f"2026-01-01T0{hour}:10")
        schedule = order(schedule, "resume", f"2026-01-01T0{hour + 1}:10")
    occurrence, schedule = look(schedule, "2026-01-01T08:00")
    assert occurrence is not None
    assert occurrence.slot == read_slot("2026-01-01T08:00")
    assert (occurrence.first, occurrence.missed) == (read_slot("2026-01-01T01:00"), 5)
    assert schedule.counts == Counts(made=1, missed=5)


@pytest.mark.parametrize("verb", ["delete", "end"])
@pytest.mark.parametrize("paused", [False, True])
def test_unhandled_slot_is_counted_when_the_schedule_is_over(
    verb: Verb,
    paused: bool,  # noqa: FBT001
) -> None:
    schedule = made("0 * * * *", "UTC", "2026-01-01T00:30")
    if paused:
        schedule = order(schedule, "pause", "2026-01-01T02:10")
    schedule = order(schedule, verb, "2026-01-01T02:20")
    assert schedule.counts == Counts(missed=2)
    assert look(schedule, "2026-01-01T03:00")[0] is None


def test_order_that_does_not_fit_is_refused_with_the_way_out() -> None:
    schedule = made("0 * * * *", "UTC", "2026-01-01T00:30")
    with pytest.raises(Refused, match="active") as caught:
        order(schedule, "resume", "2026-01-01T00:40")
    assert caught.value.hint
    with pytest.raises(Refused, match="paused") as caught:
        order(order(schedule, "pause", "2026-01-01T00:40"), "pause", "2026-01-01T00:40")
    assert "resume" in caught.value.hint
    gone = order(schedule, "delete", "2026-01-01T00:40")
    verbs: tuple[Verb, ...] = ("pause", "resume", "delete")
    for verb in verbs:
        with pytest.raises(Refused, match="deleted") as caught:
            order(gone, verb, "2026-01-01T00:50")
        assert "again" in caught.value.hint
    assert order(schedule, "end", "2026-01-01T00:40").living is False


crons = st.sampled_from(["*/15 * * * *", "0 * * * *", "30 2 * * *", "0,30 1-3 * * *", "7 0 * * SUN"])
steps = st.lists(st.integers(-2 * HOUR_MS, 5 * HOUR_MS), min_size=1, max_size=40)
changes = st.sampled_from(
    [
        ("Europe/Berlin", "2026-03-28T22:00"),
        ("Europe/Berlin", "2026-10-24T22:00"),
        ("America/New_York", "2026-03-08T04:00"),
        ("America/New_York", "2026-11-01T03:00"),
        ("Australia/Lord_Howe", "2026-10-03T12:00"),
        ("Australia/Lord_Howe", "2026-04-04T12:00"),
    ]
)


@given(crons, changes, steps, st.data())
@settings(max_examples=150)
def test_slots_only_grow_and_account_for_all_that_came(
    expression: str, change: tuple[str, str], moves: list[int], data: st.DataObject
) -> None:
    zone_name, start = change
    zone, cron = zone_of(zone_name), Cron.parse(expression)
    schedule = made(expression, zone_name, start)
    begin, now_ms, accounted = schedule.after, at(start), 0
    seen: list[Occurrence] = []
    for move in moves:
        now_ms += move
        if data.draw(st.booleans()):
            # Nothing comes in a pause of no length.
            schedule = order(order(schedule, "pause", now_ms), "resume", now_ms)
        if data.draw(st.booleans()):
            continue
        sight = Sight(running=data.draw(st.booleans()), waiting=data.draw(st.booleans()))
        occurrence, schedule = look(schedule, now_ms, sight)
        if occurrence is not None:
            assert occurrence.at_ms <= now_ms
            assert not seen or occurrence.first > seen[-1].slot
            seen.append(occurrence)
            accounted += 1 + occurrence.missed
        following = machine.next_ms(schedule, cron, zone)
        assert following is not None
        assert following > now_ms - 3 * HOUR_MS
        assert look(schedule, now_ms)[0] is None
    came = list(takewhile(lambda each: each <= schedule.after, cron.slots(begin)))
    owed = schedule.owed.missed + 1 if schedule.owed else 0
    assert accounted + owed == len(came)
    counts = schedule.counts
    assert counts.made + counts.missed + counts.skipped == accounted
    assert all(instant_of(each.slot, zone) == each.at_ms for each in seen)
