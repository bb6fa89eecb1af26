"""What is taken away from the limits."""

from __future__ import annotations

from tests.mutation.mutation import one

_PACING = "shared/anchorwatch/core/session/pacing.py"
_UNIT = "tests/unit/core/test_pacing.py::"

LIMITS = (
    one(
        "a person's word waits for a limit",
        _PACING,
        'return wake.kind in _PERSONS or (wake.kind == "message" and wake.priority == P0)',
        "return False",
        f"{_UNIT}test_urgent_request_of_a_person_is_never_held",
    ),
    one(
        "a turn costs nothing",
        _PACING,
        "max(self._full_ms(pace, now_ms), now_ms) + self.interval_ms",
        "max(self._full_ms(pace, now_ms), now_ms)",
        f"{_UNIT}test_burst_of_turns_may_begin_and_then_one_for_each_token",
    ),
    one(
        "a check goes before the limits",
        "shared/anchorwatch/core/session/wakes.py",
        "check_ms = max(from_iso(anchor.next_check_at), held.others_ms) if",
        "check_ms = from_iso(anchor.next_check_at) if",
        f"{_UNIT}test_check_also_waits_for_the_limits_and_is_one_tick",
    ),
    one(
        "a person's word is refused with what waits before it",
        _PACING,
        "found = tuple(takewhile(lambda wake: wake.kind in _REFUSED, oldest))",
        "found = tuple(oldest)",
        f"{_UNIT}test_excess_inputs_are_refused_oldest_first_up_to_a_message",
    ),
    one(
        "an account that sessions share is carried on without its fence",
        "shared/anchorwatch/journal/paces.py",
        "Expect(account.subject, account.sequence)",
        "None",
        "tests/conformance/test_rate_registers.py::test_one_of_two_sessions_gets_the_last_permitted_turn",
    ),
)
