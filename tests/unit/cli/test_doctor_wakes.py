"""What the doctor says of a session that nothing wakes."""

from __future__ import annotations

import asyncio

import pytest
from anchorwatch.bus.port import Stored
from anchorwatch.cli.doctor_wakes import LATE_MS_MAX, Neglected, lateness, neglect, wake
from anchorwatch.codec import encode
from anchorwatch.core.anchor import Anchor, Status
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.schedules.schedule import Changed, Definition, Schedule
from anchorwatch.core.schedules.zones import read_slot
from anchorwatch.core.times import from_iso, iso
from anchorwatch.journal.schedule_records import schedule_body
from anchorwatch.journal.schedules import schedule_subject

from tests.unit.cli.gateways import Gateway

NOW_MS = 1_000_000_000
HEARTBEAT_S = 300.0


def anchor(check_in_ms: int | None, status: Status = "idle") -> Anchor:
    check = None if check_in_ms is None else iso(NOW_MS + check_in_ms)
    return Anchor(workspace="w", session="s", agent="a@1", next_check_at=check, status=status)


@pytest.mark.parametrize(
    ("check_in_ms", "timer_in_ms", "why"),
    [
        (60_000, 60_000, ""),
        (60_000, 5_000, ""),
        (60_000, None, "its wake-up timer is not set"),
        (None, None, "no next check"),
        (None, 5_000, "no next check"),
        (-1_000, None, ""),
        (-LATE_MS_MAX - 1, None, "overdue"),
        # Its limits hold it: its bell rings when they let it go.
        (-LATE_MS_MAX - 1, 600_000, ""),
        (3_900_000, 3_900_000, "later than its heartbeat"),
    ],
)
def test_idle_session_without_a_timely_wakeup_is_reported(
    check_in_ms: int | None, timer_in_ms: int | None, why: str
) -> None:
    timer_ms = None if timer_in_ms is None else NOW_MS + timer_in_ms
    found = neglect(anchor(check_in_ms), timer_ms, HEARTBEAT_S, NOW_MS)
    assert (why in found) if why else (found == "")


def test_unknown_heartbeat_is_not_judged() -> None:
    assert neglect(anchor(3_900_000), NOW_MS + 3_900_000, None, NOW_MS) == ""


@pytest.mark.parametrize("status", ["active", "paused", "quarantined", "deleted"])
def test_session_that_is_not_idle_is_not_reported(status: Status) -> None:
    assert neglect(anchor(None, status), None, HEARTBEAT_S, NOW_MS) == ""


def test_fix_requests_a_turn_in_each_workspace(remote: Gateway) -> None:
    remote.answer("POST /api/sessions/s/trigger", (202, {}))
    refs = [SessionRef("default", "s"), SessionRef("night", "s")]
    check = asyncio.run(wake(None, [Neglected(ref, "it has no next check") for ref in refs]))
    assert (check.state, check.detail) == ("note", "requested a turn of s; s of workspace night")
    assert [asked.query["workspace"] for asked in remote.asked] == ["default", "night"]
    assert "no next check" in remote.asked[0].body["reason"]


def test_unavailable_gateway_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORWATCH_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("ANCHORWATCH_TOKEN", "x")
    monkeypatch.setattr("anchorwatch.cli.api.RETRY_S_MAX", 0.0)
    check = asyncio.run(wake(None, [Neglected(SessionRef("default", "s"), "why")]))
    assert check.state == "failed"
    assert "0 of 1 sessions" in check.detail


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ("2026-01-02T09:00", ""),
        ("2026-01-02T08:59", "was due 3600 s ago"),
        ("2026-01-02T10:30", ""),
        ("2031-01-01T00:00", "create it again"),
    ],
)
def test_overdue_or_future_schedule_is_reported(after: str, why: str) -> None:
    definition = Definition("w", "morning", "s", "0 9 * * *", "UTC")
    schedule = Schedule(definition, "c-1", "active", read_slot(after), Changed("ada", 0))
    payload, _ = encode(Record(Kind.SCHEDULE, 0, "x", schedule_body(schedule)))
    found = lateness(
        Stored(schedule_subject("w", "morning"), 1, 0, payload), from_iso("2026-01-02T10:00:00Z")
    )
    assert (why in found) if why else (found == "")
