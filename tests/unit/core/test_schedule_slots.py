"""Slots of a cron expression, and when they come in zones that set their clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile

import pytest
from anchorwatch.core.errors import BadInput
from anchorwatch.core.schedules.cron import Cron
from anchorwatch.core.schedules.machine import upcoming
from anchorwatch.core.schedules.zones import instant_of, reached, read_slot, shown, slot_text
from anchorwatch.zones import zone_asked, zone_of
from hypothesis import given
from hypothesis import strategies as st

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
ZONES = [BERLIN, NEW_YORK, LORD_HOWE, "Europe/Dublin", "Africa/Casablanca", "Pacific/Apia", "UTC"]
zones = st.sampled_from(ZONES)
BEGIN, END = read_slot("2011-01-01T00:00"), read_slot("2037-01-01T00:00")
instants = st.datetimes(BEGIN, END).map(lambda each: round(each.replace(tzinfo=UTC).timestamp() * 1000))
slots = st.datetimes(BEGIN, END).map(lambda each: each.replace(second=0, microsecond=0))


def comes(slot: str, zone: str) -> str:
    return shown(instant_of(read_slot(slot), zone_of(zone)), zone_of("UTC"))


GAPS = [
    (BERLIN, "2026-03-29T01:59", "2026-03-29T00:59:00+00:00"),
    (BERLIN, "2026-03-29T02:00", "2026-03-29T01:00:00+00:00"),
    (BERLIN, "2026-03-29T02:30", "2026-03-29T01:00:00+00:00"),
    (BERLIN, "2026-03-29T03:00", "2026-03-29T01:00:00+00:00"),
    (NEW_YORK, "2026-03-08T02:30", "2026-03-08T07:00:00+00:00"),
    (NEW_YORK, "2026-03-08T03:00", "2026-03-08T07:00:00+00:00"),
    # Half an hour, not a whole one: from 02:00 to 02:30.
    (LORD_HOWE, "2026-10-04T02:10", "2026-10-03T15:30:00+00:00"),
    (LORD_HOWE, "2026-10-04T02:30", "2026-10-03T15:30:00+00:00"),
    # A whole day that never was.
    ("Pacific/Apia", "2011-12-30T12:00", "2011-12-30T10:00:00+00:00"),
]
FOLDS = [
    (BERLIN, "2026-10-25T02:30", "2026-10-25T00:30:00+00:00"),
    (BERLIN, "2026-10-25T03:00", "2026-10-25T02:00:00+00:00"),
    (NEW_YORK, "2026-11-01T01:30", "2026-11-01T05:30:00+00:00"),
    (NEW_YORK, "2026-11-01T02:00", "2026-11-01T07:00:00+00:00"),
    (LORD_HOWE, "2026-04-05T01:40", "2026-04-04T14:40:00+00:00"),
    (LORD_HOWE, "2026-04-05T02:00", "2026-04-04T15:30:00+00:00"),
]


@pytest.mark.parametrize(("zone", "slot", "at"), GAPS)
def test_slot_in_a_skipped_hour_comes_at_the_first_instant_after(zone: str, slot: str, at: str) -> None:
    assert comes(slot, zone) == at


@pytest.mark.parametrize(("zone", "slot", "at"), FOLDS)
def test_slot_in_a_repeated_hour_comes_the_first_time(zone: str, slot: str, at: str) -> None:
    assert comes(slot, zone) == at


@given(slots, instants, zones)
def test_slot_is_due_exactly_at_its_instant(slot: datetime, now_ms: int, zone: str) -> None:
    tz = zone_of(zone)
    assert (instant_of(slot, tz) <= now_ms) == (slot <= reached(now_ms, tz))


@given(slots, zones, st.integers(-180, 180), st.integers(0, 59_999))
def test_slot_is_due_at_its_instant_near_each_clock_change(
    slot: datetime, zone: str, minutes: int, more_ms: int
) -> None:
    tz = zone_of(zone)
    for changed in ("2026-03-29T01:00", "2026-10-25T01:00", "2026-10-03T15:30", "2026-04-04T15:00"):
        near = read_slot(changed) + timedelta(minutes=minutes)
        now_ms = round(near.replace(tzinfo=UTC).timestamp() * 1000) + more_ms
        local = reached(now_ms, tz) + (slot - slot.replace(hour=3, minute=30))
        assert (instant_of(local, tz) <= now_ms) == (local <= reached(now_ms, tz))


@given(slots, slots, zones)
def test_later_slots_come_no_earlier(one: datetime, other: datetime, zone: str) -> None:
    first, second = sorted((one, other))
    assert instant_of(first, zone_of(zone)) <= instant_of(second, zone_of(zone))


def test_next_occurrences_are_shown_in_the_time_of_their_zone() -> None:
    zone = zone_of(BERLIN)
    found = upcoming(Cron.parse("30 2 * * *"), zone, read_slot("2026-03-27T12:00"), 3)
    assert [(slot_text(slot), shown(at_ms, zone)) for slot, at_ms in found] == [
        ("2026-03-28T02:30", "2026-03-28T02:30:00+01:00"),
        ("2026-03-29T02:30", "2026-03-29T03:00:00+02:00"),
        ("2026-03-30T02:30", "2026-03-30T02:30:00+02:00"),
    ]


def test_slots_of_one_instant_are_one_occurrence() -> None:
    found = upcoming(Cron.parse("*/15 * * * *"), zone_of(BERLIN), read_slot("2026-03-29T01:30"), 3)
    assert [slot_text(slot) for slot, _ in found] == [
        "2026-03-29T01:45",
        "2026-03-29T03:00",
        "2026-03-29T03:15",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "* * * * * *",
        "61 * * * *",
        "0 9 * * NOPE",
        "0 0 31 2 *",
        "0 0 L-99 * *",
        "@daily",
        "*/0 * * * *",
        "*/60 * * * *",
        "*/999999999999 * * * *",
        "5,10/90 * * * *",
        "0 */24 * * *",
        "0 0 L/32 * *",
        "0 0 1 1-6/13 *",
        "0 0 * * MON-FRI/8",
        f"*/{'9' * 190} * * * *",
    ],
)
def test_empty_expression_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        Cron.asked(text)
    assert "never comes" in caught.value.message or "minute hour" in caught.value.hint


@pytest.mark.parametrize(
    "text", ["*/59 * * * *", "0 */23 * * *", "0 0 */31 * *", "0 0 1 */12 *", "0 0 * * */7"]
)
def test_highest_steps_are_accepted(text: str) -> None:
    assert Cron.asked(text).expression == text


@pytest.mark.parametrize(
    ("text", "days"),
    [
        # Both are restricted: either will do.
        ("0 0 1-7 6 MON", [1, 2, 3, 4, 5, 6, 7, 8, 15, 22, 29]),
        ("0 0 1-31/2 6 MON", [1, 3, 5, 7, 8, 9, 11, 13, 15, 17, 19, 21, 22, 23, 25, 27, 29]),
        # One begins with a star: both must hold.
        ("0 0 * 6 MON", [1, 8, 15, 22, 29]),
        ("0 0 */2 6 MON", [1, 15, 29]),
        ("0 0 1-7 6 */2", [2, 4, 6, 7]),
        ("0 0 *,1 6 MON", [1, 8, 15, 22, 29]),
    ],
)
def test_either_day_will_do_unless_one_begins_with_a_star(text: str, days: list[int]) -> None:
    june, july = read_slot("2026-05-31T23:59"), read_slot("2026-07-01T00:00")
    found = takewhile(lambda slot: slot < july, Cron.asked(text).slots(june))
    assert [slot.day for slot in found] == days


@pytest.mark.parametrize(
    "name", ["localtime", "posixrules", "Factory", "right/Europe/Berlin", "posix/Europe/Berlin"]
)
def test_zone_that_is_not_the_same_on_every_machine_is_refused(name: str) -> None:
    with pytest.raises(BadInput) as caught:
        zone_asked(name)
    assert "Europe/Berlin" in caught.value.hint


@pytest.mark.parametrize("name", ["localtim", "posixrule", "Factry"])
def test_system_zone_names_are_never_proposed(name: str) -> None:
    with pytest.raises(BadInput) as caught:
        zone_asked(name)
    assert not any(each in caught.value.hint for each in ("localtime", "posixrules", "Factory"))


@pytest.mark.parametrize(
    ("name", "hint"),
    [("Europe/Berln", "Europe/Berlin"), ("Europe", "Europe/"), ("../x", "example"), ("", "")],
)
def test_unknown_zone_is_refused_with_a_known_one(name: str, hint: str) -> None:
    with pytest.raises(BadInput) as caught:
        zone_asked(name)
    assert hint in caught.value.hint


@given(slots)
def test_slot_at_or_before_is_the_last_one(slot: datetime) -> None:
    cron = Cron.parse("*/7 3-5 * * *")
    found = cron.at_or_before(slot)
    assert found is not None
    assert found <= slot
    following = cron.following(found)
    assert following is not None
    assert following > slot
