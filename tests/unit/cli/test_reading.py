"""Reading verbs: what is asked of the gateway, and what people and programs see of its answer."""

import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

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


def test_end_of_a_growing_list_is_shown_newest_last(run: Run, remote: Gateway) -> None:
    newest = [{"sequence": 9, "at": "2026-03-17T18:56:43+00:00", "what": "turn 2 ended: success", "why": "done"},
              {"sequence": 8, "at": "2026-03-17T18:56:42+00:00", "what": "turn 2 started", "why": ""}]  # fmt: skip
    remote.answer("GET /api/sessions/fleet/timeline", page(*newest, following="more"))
    ran = run("timeline", "fleet", "--limit", "2", "--turn", "2")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[1].split()[2:4] == ["8", "-"]
    assert lines[2].endswith("turn 2 ended: success - done")
    assert remote.asked[0].query == {"order": "desc", "limit": "2", "turn": "2"}


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The local time zone is UTC+9."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("tokyo")
@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ((), "2026-03-18 03:56:43 "),
        (("--utc",), "2026-03-17 18:56:43Z "),
        (("--iso",), "2026-03-18T03:56:43+09:00 "),
        (("--utc", "--iso"), "2026-03-17T18:56:43Z "),
    ],
)
@pytest.mark.parametrize("verb", ["timeline", "wakes"])
def test_times_are_short_and_local_by_default(
    run: Run, remote: Gateway, verb: str, options: tuple[str, ...], shown: str
) -> None:
    at = "2026-03-17T18:56:43.163Z"
    remote.answer(
        f"GET /api/sessions/fleet/{verb}",
        page({"sequence": 1, "at": at, "accepted_at": at, "kind": "event", "what": "x"}),
    )
    remote.answer("GET /api/schedules", page())
    assert run(verb, "fleet", *options).out.splitlines()[1].startswith(shown)


@pytest.mark.usefixtures("tokyo")
def test_time_of_today_has_no_date(run: Run, remote: Gateway) -> None:
    now = datetime.now(UTC)
    remote.answer(
        "GET /api/sessions/fleet/timeline", page({"sequence": 1, "at": now.isoformat(), "what": "x"})
    )
    line = run("timeline", "fleet", "--utc").out.splitlines()[1]
    # At midnight the row may be of yesterday.
    assert line.startswith(now.strftime("%H:%M:%SZ ")) or datetime.now(UTC).date() != now.date()


def test_timeline_shows_facts_data_and_changes(run: Run, remote: Gateway) -> None:
    at = "2026-03-17T18:56:43+00:00"
    rows = [
        {"sequence": 7, "at": at, "what": "session paused", "why": "it rains",
         "changes": {"status": {"from": "idle", "to": "paused"}, "objectives": {"to": ["a"]}}},
        {"sequence": 6, "at": at, "what": "step 1: launch(count=2)", "why": "5 tasks, no worker", "call": "fleet/1.1.1",
         "facts": {"tasks_queued": 5, "workers_alive": None, "zone": "eu"}, "facts_omitted": 2},
        {"sequence": 5, "at": at, "what": "event fleet.a (P0)", "data": 'instance="i-3"'},
    ]  # fmt: skip
    remote.answer("GET /api/sessions/fleet/timeline", page(*rows))
    lines = run("timeline", "fleet", "--utc").out.splitlines()
    assert lines == [
        "at                    seq  who  what",
        "2026-03-17 18:56:43Z  5    -    event fleet.a (P0)",
        '    data: instance="i-3"',
        "2026-03-17 18:56:43Z  6    -    step 1: launch(count=2) [fleet/1.1.1] - 5 tasks, no worker",
        '    facts: tasks_queued=5, workers_alive=unknown, zone="eu", 2 more',
        "2026-03-17 18:56:43Z  7    -    session paused - it rains",
        '    status: "idle" -> "paused"',
        '    objectives: unknown -> ["a"]',
    ]


def test_timeline_wraps_at_the_width_of_the_terminal(
    run: Run, remote: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"sequence": 6, "at": "2026-03-17T18:56:43Z", "what": "step 1: launch(count=2)", "why": "word " * 100,
           "facts": {f"fact_{n}": n for n in range(30)}}  # fmt: skip
    remote.answer("GET /api/sessions/fleet/timeline", page(row))
    monkeypatch.setattr("anchorwatch.cli.render.terminal_width", lambda: 72)
    ran = run("timeline", "fleet")
    assert max(map(len, ran.out.splitlines())) <= 72
    assert (ran.out.count("word"), ran.out.count("fact_"), ran.err) == (100, 30, "")


def test_settings_wrap_at_the_width_of_the_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run("config").out
    assert max(map(len, whole.splitlines())) > 120
    monkeypatch.setattr("anchorwatch.cli.render.terminal_width", lambda: 120)
    wrapped = run("config").out
    assert max(map(len, wrapped.splitlines())) <= 120
    assert wrapped.split() == whole.split()


def test_table_that_is_cut_to_the_terminal_says_so(
    run: Run, remote: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.answer("GET /api/sessions", page({"name": "fleet", "agent": "keeper", "status": "idle"}))
    monkeypatch.setattr("anchorwatch.cli.render.terminal_width", lambda: 30)
    ran = run("sessions")
    assert max(map(len, ran.out.splitlines())) <= 30
    assert "--json prints them in full" in ran.err


def test_output_to_a_program_is_not_wrapped(run: Run, remote: Gateway) -> None:
    row = {"sequence": 6, "at": "2026-03-17T18:56:43Z", "what": "x", "why": "word " * 100}
    remote.answer("GET /api/sessions/fleet/timeline", page(row))
    ran = run("timeline", "fleet")
    assert (len(ran.out.splitlines()), ran.err) == (2, "")


def test_long_value_of_a_list_is_shortened_and_says_so(run: Run, remote: Gateway) -> None:
    remote.answer("GET /api/sessions", page({"name": "fleet", "agent": "k" * 500, "status": "idle"}))
    ran = run("sessions")
    assert "k" * 199 + "…" in ran.out
    assert "--json prints them in full" in ran.err


def test_workspace_setting_is_sent(run: Run, remote: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORWATCH_WORKSPACE", "night")
    remote.answer("GET /api/sessions", page())
    assert run("sessions").code == 0
    assert remote.asked[0].query["workspace"] == "night"


@pytest.mark.parametrize("verb", ["sessions", "agents", "models", "effects", "deliveries"])
def test_empty_list_is_not_an_error(run: Run, remote: Gateway, verb: str) -> None:
    remote.answer(f"GET /api/{verb}", page())
    ran = run(verb)
    assert ran.code == 0
    assert ran.out.count("\n") == 1
    assert json.loads(run(verb, "--json").out) == []


def test_call_is_found_by_its_printed_id(run: Run, remote: Gateway) -> None:
    effects = [{"call": "fleet/15.2.1", "tool": "launch_instances", "state": "succeeded"},
               {"call": "fleet/15.2.2", "tool": "notify_human", "state": "unknown"}]  # fmt: skip
    remote.answer("GET /api/effects", page(*effects))
    for words in (["show", "fleet/15.2.2"], ["effects", "fleet/15.2.2"]):
        ran = run(*words, "--json")
        assert json.loads(ran.out)["tool"] == "notify_human"
        assert remote.asked[-1].query["session"] == "fleet"
        assert remote.asked[-1].query["turn"] == "15"
    assert run("show", "fleet/15.9.1").code == 4


def test_anchor_history_shows_author_and_change(run: Run, remote: Gateway) -> None:
    change = {"sequence": 3, "kind": "acquired", "at": "2026-03-17T18:56:43+00:00", "by": "planner-1:x", "reason": "a tick",
              "changes": {"run_id": {"from": 0, "to": 1}}}  # fmt: skip
    remote.answer("GET /api/sessions/fleet/anchor", page(change))
    ran = run("anchor", "fleet", "--history")
    assert remote.asked[0].query["history"] == "true"
    assert "acquired  by planner-1:x: a tick" in ran.out
    assert "run_id: 0 -> 1" in ran.out


def test_tail_continues_after_the_last_record(
    run: Run, remote: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anchorwatch.cli.api.RETRY_S_MAX", 0.3)
    record = '{"sequence": %d, "at": "2026-03-17T18:56:43+00:00", "what": "turn %d started"}'
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


def test_tail_of_an_unknown_session_is_not_found(run: Run, remote: Gateway) -> None:
    assert run("tail", "nobody").code == 4
    assert run("tail", "nobody", "--json").code == 4
    assert remote.asked[-1].path == "/api/sessions/nobody/stream"


def test_tail_in_text_form_begins_with_the_last_records(
    run: Run, remote: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anchorwatch.cli.api.RETRY_S_MAX", 0.3)
    remote.answer("GET /api/sessions/fleet/timeline", page({"sequence": 9}, {"sequence": 7}))
    remote.streams["/api/sessions/fleet/stream"] = []
    ran = run("tail", "fleet")
    assert "following fleet (Ctrl-C ends it)" in ran.err
    assert remote.asked[1].query == {"after": "6"}


def test_tail_shows_the_facts_of_a_decision(
    run: Run, remote: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anchorwatch.cli.api.RETRY_S_MAX", 0.3)
    record = {
        "sequence": 7,
        "at": "2026-03-17T18:56:43Z",
        "what": "step 1: fire()",
        "facts": {"workers": None},
    }
    event = f"id: 7\nevent: record\ndata: {json.dumps(record)}\n\n"
    remote.streams["/api/sessions/fleet/stream"] = [event]
    out = run("tail", "fleet", "--after", "6", "--utc").out
    assert out == "2026-03-17 18:56:43Z       7  step 1: fire()\n    facts: workers=unknown\n"


def test_author_is_shown_without_its_incarnation(run: Run, remote: Gateway) -> None:
    row = {
        "sequence": 1,
        "at": "2026-03-17T18:56:43Z",
        "what": "turn 1 started",
        "who": f"planner-1:{'0a' * 16}",
    }
    remote.answer("GET /api/sessions/fleet/timeline", page(row))
    assert "  planner-1  turn 1 started" in run("timeline", "fleet").out
    assert json.loads(run("timeline", "fleet", "--json").out)[0]["who"] == row["who"]
