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


def test_the_end_of_a_growing_list_is_shown_newest_last(run: Run, remote: Gateway) -> None:
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


def test_the_workspace_setting_is_sent(run: Run, remote: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORWATCH_WORKSPACE", "night")
    remote.answer("GET /api/sessions", page())
    assert run("sessions").code == 0
    assert remote.asked[0].query["workspace"] == "night"


@pytest.mark.parametrize("verb", ["sessions", "agents", "models", "effects", "deliveries"])
def test_an_empty_list_is_not_an_error(run: Run, remote: Gateway, verb: str) -> None:
    remote.answer(f"GET /api/{verb}", page())
    ran = run(verb)
    assert ran.code == 0
    assert ran.out.count("\n") == 1
    assert json.loads(run(verb, "--json").out) == []


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


def test_tail_of_an_unknown_session_is_not_found(run: Run, remote: Gateway) -> None:
    assert run("tail", "nobody").code == 4
    assert run("tail", "nobody", "--json").code == 4
    assert remote.asked[-1].path == "/api/sessions/nobody/stream"


def test_tail_for_people_begins_with_the_last_records(
    run: Run, remote: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anchorwatch.cli.api.RETRY_S_MAX", 0.3)
    remote.answer("GET /api/sessions/fleet/timeline", page({"sequence": 9}, {"sequence": 7}))
    remote.streams["/api/sessions/fleet/stream"] = []
    ran = run("tail", "fleet")
    assert "following fleet (Ctrl-C ends it)" in ran.err
    assert remote.asked[1].query == {"after": "6"}


def test_the_author_is_shown_without_its_incarnation(run: Run, remote: Gateway) -> None:
    row = {
        "sequence": 1,
        "at": "2026-03-17T18:56:43Z",
        "what": "turn 1 began",
        "who": f"planner-1:{'0a' * 16}",
    }
    remote.answer("GET /api/sessions/fleet/timeline", page(row))
    assert "  planner-1  turn 1 began" in run("timeline", "fleet").out
    assert json.loads(run("timeline", "fleet", "--json").out)[0]["who"] == row["who"]
