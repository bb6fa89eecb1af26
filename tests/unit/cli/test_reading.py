"""Reading verbs: what is asked of the gateway, and what people and programs see of its answer."""

import json
import time
from collections.abc import Mapping

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.gateways import TOKEN, Gateway


def page(*rows: Mapping[str, object], following: str | None = None) -> tuple[int, dict[str, object]]:
    return 200, {"data": list(rows), "next": following}


def test_lists_follow_their_pages_up_to_the_limit(run: Run, remote: Gateway) -> None:
    rows = [{"name": f"s{number}", "agent": "a", "status": "idle"} for number in range(5)]
    remote.answer(
        "GET /api/sessions", page(*rows[:2], following="c1"), page(*rows[2:4], following="c2"), page(rows[4])
    )
    ran = run("sessions", "--json")
    assert ran.code == 0
    assert [row["name"] for row in json.loads(ran.out)] == ["s0", "s1", "s2", "s3", "s4"]
    assert [asked.query.get("cursor") for asked in remote.asked] == [None, "c1", "c2"]
    assert remote.asked[0].headers["authorization"] == f"Bearer {TOKEN}"


HELD = [
    {"by": "kill_switch", "of": "agent", "who": "ada", "since": "2026-03-17T18:56:43Z", "until": None, "why": "it smells"},
    {"by": "rate_limit", "of": "agent", "who": "", "since": "x", "until": "2026-03-17T19:56:43Z", "why": "turns_per_hour"},
]  # fmt: skip


def test_what_holds_a_session_is_told_with_who_and_why(run: Run, remote: Gateway) -> None:
    row = {"name": "fleet", "agent": "keeper", "status": "idle", "held": HELD}
    remote.answer("GET /api/sessions", page(row))
    remote.answer("GET /api/sessions/fleet", (200, row))
    for verb in (("sessions",), ("show", "fleet")):
        told = run(*verb).out
        assert "kill switch of the agent by ada since 2026-03-17" in told
        assert "(it smells); rate limit until 2026-03-17" in told
        assert "(turns_per_hour)" in told
    assert json.loads(run("show", "fleet", "--json").out)["held"] == HELD


def test_what_grows_for_ever_is_shown_from_its_end_the_newest_last(run: Run, remote: Gateway) -> None:
    newest = [{"sequence": 9, "at": "2026-03-17T18:56:43+00:00", "what": "turn 2 ended: success", "why": "done"},
              {"sequence": 8, "at": "2026-03-17T18:56:42+00:00", "what": "turn 2 began", "why": ""}]  # fmt: skip
    remote.answer("GET /api/sessions/fleet/timeline", page(*newest, following="more"))
    ran = run("timeline", "fleet", "--limit", "2", "--turn", "2")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[1].split()[2:4] == ["8", "-"]
    assert lines[2].endswith("turn 2 ended: success - done")
    assert remote.asked[0].query == {"order": "desc", "limit": "2", "turn": "2"}


def test_times_are_local_and_whole_seconds(
    run: Run, remote: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    remote.answer(
        "GET /api/sessions/fleet/timeline",
        page({"sequence": 1, "at": "2026-03-17T18:56:43.163Z", "what": "x"}),
    )
    ran = run("timeline", "fleet")
    monkeypatch.undo()
    time.tzset()
    assert "2026-03-18 03:56:43+09:00" in ran.out


def test_a_chosen_workspace_is_asked_about(
    run: Run, remote: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANCHORWATCH_WORKSPACE", "night")
    remote.answer("GET /api/sessions", page())
    assert run("sessions").code == 0
    assert remote.asked[0].query["workspace"] == "night"


@pytest.mark.parametrize("verb", ["sessions", "agents", "models", "effects", "deliveries"])
def test_an_empty_list_is_said_and_is_no_error(run: Run, remote: Gateway, verb: str) -> None:
    remote.answer(f"GET /api/{verb}", page())
    ran = run(verb)
    assert ran.code == 0
    assert ran.out.count("\n") == 1
    assert json.loads(run(verb, "--json").out) == []


def test_models_are_shown_with_their_correction_and_their_last_fault(run: Run, remote: Gateway) -> None:
    row = {
        "name": "small", "model": "qwen3:8b", "endpoint": "http://h/v1", "counter": "o200k_base × 1.4, an estimate",
        "correction": {"ratio": 1.25, "excess": 40, "reports": 3}, "last_report": {"counted": 100, "reported": 120},
        "failures": 2, "fault": {"code": "model_unavailable", "why": "it is away"}, "agents": ["keeper", "other"],
    }  # fmt: skip
    broken = {"name": "large", "agents": ["third"], "problem": "unknown model 'large'"}
    remote.answer("GET /api/models", page(row, broken))
    said = run("models").out
    for words in (
        "× 1.25, at least + 40",
        "120 (counted 100)",
        "it is away",
        "keeper, other",
        "unknown model 'large'",
    ):
        assert words in said


def test_what_was_used_is_shown_by_turn_by_day_and_in_all(run: Run, remote: Gateway) -> None:
    day = {"day": "2026-03-17", "calls": 2, "prompt": 220, "completion": 15, "cost": 0.375}
    remote.answer("GET /api/sessions/fleet", (200, {"usage": {"ever": {**day, "calls": 9}, "days": [day]}}))
    turn = {"run_id": 7, "outcome": "success", "steps_count": 1, "usage": {"prompt": 50, "completion": 3}}
    remote.answer("GET /api/sessions/fleet/turns", page(turn))
    lines = run("costs", "fleet").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["run", "2026-03-17", "total"]
    assert "0.375" in lines[-1]
    assert json.loads(run("costs", "fleet", "--json").out)["turns"] == [{"run_id": 7, "usage": turn["usage"]}]


def test_a_turn_that_rules_decided_asked_no_model(run: Run, remote: Gateway) -> None:
    ever = {"calls": 0, "prompt": 0, "completion": 0, "cost": 0.0}
    remote.answer("GET /api/sessions/fleet", (200, {"usage": {"ever": ever, "days": []}}))
    turn = {"run_id": 7, "outcome": "success", "steps_count": 3, "usage": {}}
    remote.answer("GET /api/sessions/fleet/turns", page(turn))
    assert run("costs", "fleet").out.splitlines()[1].split() == ["run", "7", "success", "-", "-", "-", "-"]


def test_the_timeline_marks_what_the_prompt_skipped(run: Run, remote: Gateway) -> None:
    entry = {
        "sequence": 3,
        "at": "2026-03-17T18:56:43+00:00",
        "who": "planner-1",
        "what": "turn ended",
        "why": "quiet",
    }
    marked = {**entry, "in_prompt": "skipped"}
    remote.answer("GET /api/sessions/fleet/timeline", page(marked, {**entry, "in_prompt": "whole"}))
    assert run("timeline", "fleet").out.count("[skipped in prompt]") == 1


def test_a_call_is_found_by_its_printed_id(run: Run, remote: Gateway) -> None:
    effects = [{"call": "fleet/15.2.1", "tool": "launch_instances", "state": "succeeded"},
               {"call": "fleet/15.2.2", "tool": "notify_human", "state": "unknown"}]  # fmt: skip
    remote.answer("GET /api/effects", page(*effects))
    for words in (["show", "fleet/15.2.2"], ["effects", "fleet/15.2.2"]):
        ran = run(*words, "--json")
        assert json.loads(ran.out)["tool"] == "notify_human"
        assert remote.asked[-1].query["session"] == "fleet"
        assert remote.asked[-1].query["turn"] == "15"
    assert run("show", "fleet/15.9.1").code == 4


def test_a_session_is_shown_as_rows_with_its_anchor_indented_and_as_json_to_programs(
    run: Run, remote: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    anchor = {
        "run_id": 15, "last_run_timestamp": "2026-03-17T18:56:43.5+00:00", "objectives": ["500 an hour", "no loss"],
        "facts": {"workers_dead": None, "demand_queued": True, "tasks_queued": 0}, "turn": None, "constraints": [],
        "fences": [{"run": 15, "at": None}, {"run": 16, "at": None}],
    }  # fmt: skip
    row = {"name": "fleet", "held": [], "anchor": anchor, "pending": 3}
    remote.answer("GET /api/sessions/fleet", (200, row))
    assert (
        run("show", "fleet").out
        == """\
name     fleet
held     -
anchor
  run_id              15
  last_run_timestamp  2026-03-17 18:56:43+00:00
  objectives
    - 500 an hour
    - no loss
  facts
    workers_dead   unknown
    demand_queued  true
    tasks_queued   0
  turn                -
  constraints         -
  fences
    - run  15
      at   -
    - run  16
      at   -
pending  3
"""
    )
    assert json.loads(run("show", "fleet", "--json").out) == row
    monkeypatch.undo()
    time.tzset()


def test_the_anchor_is_json_also_for_people(run: Run, remote: Gateway) -> None:
    anchor = {"run_id": 15, "facts": {"workers_dead": None}}
    remote.answer("GET /api/sessions/fleet/anchor", (200, anchor))
    assert json.loads(run("anchor", "fleet").out) == anchor


def test_the_history_of_the_anchor_shows_what_changed_when_and_by_whom(run: Run, remote: Gateway) -> None:
    change = {"sequence": 3, "kind": "acquired", "at": "2026-03-17T18:56:43+00:00", "by": "planner-1:x", "reason": "a tick",
              "changes": {"run_id": {"from": 0, "to": 1}}}  # fmt: skip
    remote.answer("GET /api/sessions/fleet/anchor", page(change))
    ran = run("anchor", "fleet", "--history")
    assert remote.asked[0].query["history"] == "true"
    assert "acquired  by planner-1:x: a tick" in ran.out
    assert "run_id: 0 -> 1" in ran.out


def test_the_timeline_names_calls_as_the_verbs_take_them_and_wakes_say_what_they_are(
    run: Run, remote: Gateway
) -> None:
    at = "2026-03-17T18:56:43+00:00"
    entry = {"sequence": 9, "at": at, "what": "fire is unknown", "call": "fleet/3.1.1"}
    remote.answer("GET /api/sessions/fleet/timeline", page(entry))
    assert "fire is unknown [fleet/3.1.1]" in run("timeline", "fleet").out
    kinds = (("tick", ""), ("tick", "tick"), ("tick", "check"), ("control", ""), ("canary", ""))
    wakes = [
        {"sequence": n, "accepted_at": at, "kind": kind, "text": "", "type": type_}
        for n, (kind, type_) in enumerate(kinds)
    ]
    remote.answer("GET /api/sessions/fleet/wakes", page(*wakes))
    remote.answer("GET /api/schedules", page())
    out = run("wakes", "fleet").out
    ticks = ("wake-up timer", "debounce window ended", "scheduled check")
    assert all(said in out for said in (*ticks, "order", "canary turn after a reset"))


def test_a_wake_is_named_before_what_it_says(run: Run, remote: Gateway) -> None:
    at = "2026-03-17T18:56:43+00:00"
    event = {"kind": "event", "source": "fleet", "type": "instance.dead", "text": '{"id": "w-7"}'}
    slot = {"kind": "tick", "source": "schedule", "type": "morning", "text": "2026-03-17T07:30 UTC"}
    order = {"kind": "control", "source": "", "type": "paused", "text": "it rains"}
    word = {"kind": "message", "source": "", "type": "", "text": "more comes at noon"}
    rows = [{"sequence": n, "accepted_at": at, **each} for n, each in enumerate((event, slot, order, word))]
    remote.answer("GET /api/sessions/fleet/wakes", page(*reversed(rows)))
    remote.answer("GET /api/schedules", page())
    said = run("wakes", "fleet").out.splitlines()[1:]
    ends = (
        'fleet.instance.dead - {"id": "w-7"}',
        "schedule morning - 2026-03-17T07:30 UTC",
        "  paused - it rains",
        "  more comes at noon",
    )
    assert all(line.endswith(end) for line, end in zip(said, ends, strict=True))


def test_hostile_content_stays_within_its_line(run: Run, remote: Gateway) -> None:
    row = {"sequence": 1, "at": "2026-03-17T18:56:43+00:00", "what": "a\nfake line\x1b[2J" + "x" * 500}
    remote.answer("GET /api/sessions/fleet/timeline", page(row))
    out = run("timeline", "fleet").out
    assert out.count("\n") == 2
    assert "\x1b" not in out


def test_tail_prints_records_and_comes_back_behind_the_last_one(
    run: Run, remote: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anchorwatch.cli.api.RETRY_S_MAX", 0.3)
    record = '{"sequence": %d, "at": "2026-03-17T18:56:43+00:00", "what": "turn %d began"}'
    remote.streams["/api/sessions/fleet/stream"] = [
        f": hello\n\nid: 7\nevent: record\ndata: {record % (7, 1)}\n\nevent: ping\ndata: {{}}\n\n",
        f"id: 8\nevent: record\ndata: {record % (8, 2)}\n\n",
    ]
    ran = run("tail", "fleet", "--json", "--after", "6")
    # The stream never comes back: after a bounded time that is an error.
    assert ran.code == 3
    assert [json.loads(line)["sequence"] for line in ran.out.splitlines()] == [7, 8]
    assert remote.asked[0].query == {"after": "6"}
    assert remote.asked[1].headers["last-event-id"] == "7"
    assert remote.asked[2].headers["last-event-id"] == "8"


def test_a_tail_of_no_session_is_not_found(run: Run, remote: Gateway) -> None:
    assert run("tail", "nobody").code == 4
    assert run("tail", "nobody", "--json").code == 4
    assert remote.asked[-1].path == "/api/sessions/nobody/stream"


def test_a_tail_for_people_says_so_and_begins_with_the_last_few_records(
    run: Run, remote: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anchorwatch.cli.api.RETRY_S_MAX", 0.3)
    remote.answer("GET /api/sessions/fleet/timeline", page({"sequence": 9}, {"sequence": 7}))
    remote.streams["/api/sessions/fleet/stream"] = []
    ran = run("tail", "fleet")
    assert "following fleet (Ctrl-C ends it)" in ran.err
    assert remote.asked[1].query == {"after": "6"}


def test_who_is_named_without_the_incarnation(run: Run, remote: Gateway) -> None:
    row = {
        "sequence": 1,
        "at": "2026-03-17T18:56:43Z",
        "what": "turn 1 began",
        "who": f"planner-1:{'0a' * 16}",
    }
    remote.answer("GET /api/sessions/fleet/timeline", page(row))
    assert "  planner-1  turn 1 began" in run("timeline", "fleet").out
    assert json.loads(run("timeline", "fleet", "--json").out)[0]["who"] == row["who"]
