"""`schedule`: what is sent, and what is shown."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.gateways import Gateway

SCHEDULE: dict[str, Any] = {
    "name": "morning", "session": "fleet", "cron": "30 2 * * *", "zone": "Europe/Berlin", "text": "count the fleet",
    "missed": "one", "overlap": "skip", "state": "active", "last_slot": None, "by": "ada", "reason": "",
    "at": "2026-03-28T12:00:00+00:00", "sequence": 7, "counts": {"made": 2, "missed": 1, "skipped": 0},
    "next": [{"slot": "2026-03-29T02:30", "at": "2026-03-29T03:00:00+02:00"}],
}  # fmt: skip


def test_create_sends_the_schedule_and_shows_its_times(run: Run, remote: Gateway) -> None:
    remote.answer("POST /api/schedules", (201, SCHEDULE))
    words = (
        "--session",
        "fleet",
        "--cron",
        "30 2 * * *",
        "--zone",
        "Europe/Berlin",
        "--text",
        "count the fleet",
    )
    ran = run("schedule", "create", "morning", *words, "--key", "k")
    assert remote.asked[0].headers["idempotency-key"] == "k"
    assert remote.asked[0].body == {
        "name": "morning", "session": "fleet", "cron": "30 2 * * *", "zone": "Europe/Berlin",
        "text": "count the fleet", "missed": "one", "overlap": "skip",
    }  # fmt: skip
    assert "schedule morning of session fleet: 30 2 * * * in Europe/Berlin" in ran.out
    assert "missed: run one · overlap: skip · runs 2, missed 1, skipped 0" in ran.out
    assert "next:\n  2026-03-29T03:00:00+02:00\n" in ran.out


@pytest.mark.parametrize("words", [(), ("list",)])
def test_list_shows_state_and_next_time(run: Run, remote: Gateway, words: tuple[str, ...]) -> None:
    paused = {**SCHEDULE, "name": "night", "state": "paused"}
    damaged: dict[str, Any] = {
        "name": "odd",
        "session": None,
        "state": "damaged",
        "reason": "digest",
        "next": [],
    }
    remote.answer("GET /api/schedules", (200, {"data": [SCHEDULE, paused, damaged], "next": None}))
    lines = run("schedule", *words, "--session", "fleet").out.splitlines()
    assert remote.asked[0].query == {"session": "fleet", "limit": "200"}
    assert "2026-03-29T03:00:00+02:00" in lines[1]
    assert "2026-03-29" not in lines[2]
    assert "damaged" in lines[3]


def test_owed_run_of_a_paused_schedule_is_shown(run: Run, remote: Gateway) -> None:
    owed = {"slot": "2026-03-28T02:30", "at": "2026-03-28T02:30:00+01:00", "missed": 2}
    paused = {**SCHEDULE, "state": "paused", "owed": owed}
    remote.answer("GET /api/schedules", (200, {"data": [{**SCHEDULE, "owed": None}, paused], "next": None}))
    title, one, other = run("schedule").out.splitlines()
    at = title.index("owed")
    assert (one[at], other[at:].split("  ")[0]) == ("-", owed["at"])
    remote.answer("GET /api/schedules/morning", (200, paused))
    said = run("schedule", "show", "morning").out
    assert (
        "owed: 2026-03-28T02:30:00+01:00, with 2 before it: scheduled before the pause, still to run, once"
        in said
    )


def test_schedule_is_paused_resumed_and_deleted(run: Run, remote: Gateway) -> None:
    for verb in ("pause", "resume"):
        remote.answer(f"POST /api/schedules/morning/{verb}", (200, {**SCHEDULE, "state": "paused"}))
        assert "next (once resumed):" in run("schedule", verb, "morning", "--reason", "quiet").out
    remote.answer("DELETE /api/schedules/morning", (200, SCHEDULE))
    assert run("schedule", "delete", "morning", "--reason", "over").out == "schedule morning deleted\n"
    assert [asked.body for asked in remote.asked] == [{"reason": "quiet"}, {"reason": "quiet"}, None]
    assert remote.asked[-1].query == {"reason": "over"}
    assert remote.asked[-1].headers["idempotency-key"]


def test_invalid_name_is_refused_before_the_request(run: Run, remote: Gateway) -> None:
    assert run("schedule", "show", "Not/a name").code == 2
    assert remote.asked == []


def test_wakes_show_the_next_schedule(run: Run, remote: Gateway) -> None:
    wake = {"sequence": 9, "accepted_at": "2026-03-28T12:00:00+00:00", "priority": 1, "kind": "tick",
            "disposition": "pending", "text": "2026-03-28T02:30 Europe/Berlin: count the fleet"}  # fmt: skip
    remote.answer("GET /api/sessions/fleet/wakes", (200, {"data": [wake], "next": None}))
    night = {**SCHEDULE, "name": "night", "state": "paused"}
    remote.answer("GET /api/schedules", (200, {"data": [SCHEDULE, night], "next": None}))
    lines = run("wakes", "fleet").out.splitlines()
    assert "pending" in lines[1]
    assert lines[2:] == ["next: 2026-03-29T03:00:00+02:00 by the schedule morning"]
    assert run("wakes", "fleet", "--json").out.lstrip().startswith("[")
