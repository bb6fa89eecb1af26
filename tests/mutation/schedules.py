"""What is taken away from the schedules."""

from __future__ import annotations

from tests.mutation.mutation import one

_MACHINE = "shared/anchorwatch/core/schedules/machine.py"
_ZONES = "shared/anchorwatch/core/schedules/zones.py"
_SLOTS = "tests/unit/core/test_schedule_slots.py::"
_UNIT = "tests/unit/core/test_schedule_machine.py::"

SCHEDULES = (
    one(
        "a slot that was seen to comes again",
        _MACHINE,
        "after = max(schedule.after, occurrence.slot)",
        "after = schedule.after",
        f"{_UNIT}test_missed_slots_are_made_up_for_once",
    ),
    one(
        "a second occurrence waits",
        _MACHINE,
        "    if sight.waiting:",
        "    if False:",
        f"{_UNIT}test_overlap_policy_decides_during_a_turn_and_one_slot_waits",
    ),
    one(
        "what came while a schedule was paused is made up for",
        _MACHINE,
        "after = max(schedule.after, reached(changed.at_ms, zone))",
        "after = schedule.after",
        f"{_UNIT}test_slots_during_a_pause_are_not_made_up_for",
    ),
    one(
        "what came before a pause, and was not seen to, is lost",
        _MACHINE,
        "    owed = _came(schedule, cron, zone, changed.at_ms)",
        "    owed = None",
        f"{_UNIT}test_slot_before_a_pause_is_handled_once_after_it",
    ),
    one(
        "a slot in a gap comes when the clocks before the gap would have shown it",
        _ZONES,
        "    if after > before:",
        "    if False:",
        f"{_SLOTS}test_slot_in_a_skipped_hour_comes_at_the_first_instant_after",
    ),
    one(
        "a minute that the clocks show again is taken for the first",
        _ZONES,
        "    if not local.fold:",
        "    if True:",
        f"{_UNIT}test_schedule_made_in_a_repeated_hour_begins_after_that_hour",
    ),
    one(
        "an idle session without a check is left alone",
        "shared/anchorwatch/core/session/wakes.py",
        "else NotBefore(LONG_AGO_MS, check=True)",
        "else Never()",
        "tests/unit/core/test_wakes_properties.py::test_repeated_checks_lead_to_a_turn_or_the_scheduled_check",
    ),
)
