"""Writing verbs: what is sent, and that sending it twice does it once."""

import io
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.gateways import Gateway

RECEIPT = {"input_id": "in_1", "session": "fleet", "sequence": 41, "accepted_at": "2026-03-17T18:56:43+00:00",
           "replayed": False, "session_status": "idle"}  # fmt: skip
AWAY = (503, {"code": "unavailable", "message": "the bus is away", "hint": ""})


def test_message_is_p0_and_has_an_idempotency_key(run: Run, remote: Gateway) -> None:
    remote.answer("POST /api/sessions/fleet/inputs", (202, RECEIPT))
    ran = run("say", "fleet", "hold the fleet")
    assert ran.out == "accepted by fleet as in_1 (journal sequence 41)\n"
    assert remote.asked[0].body == {"content": "hold the fleet", "priority": "P0"}
    assert len(remote.asked[0].headers["idempotency-key"]) >= 16


def test_retry_has_the_same_key(run: Run, remote: Gateway) -> None:
    remote.answer("POST /api/sessions/fleet/inputs", AWAY, AWAY, (202, {**RECEIPT, "replayed": True}))
    ran = run("say", "fleet", "hello")
    assert ran.code == 0
    assert "; already accepted before" in ran.out
    assert len({asked.headers["idempotency-key"] for asked in remote.asked}) == 1
    assert len(remote.asked) == 3


def test_given_key_is_used(run: Run, remote: Gateway) -> None:
    remote.answer("POST /api/sessions/fleet/inputs", (202, RECEIPT))
    run("say", "fleet", "hello", "--key", "my-key")
    assert remote.asked[0].headers["idempotency-key"] == "my-key"


def test_key_used_with_another_text_is_refused(run: Run, remote: Gateway) -> None:
    conflict = {"code": "idempotency_conflict", "message": "the key was used before", "hint": "use a new key"}
    remote.answer("POST /api/sessions/fleet/inputs", (409, conflict))
    ran = run("say", "fleet", "hello", "--key", "my-key")
    assert ran.code == 5
    assert ran.err == "anchorwatch: the key was used before (use a new key)\n"


SWITCH = {"scope": "agent", "name": "keeper", "on": True, "by": "ada", "at": "2026-03-17T18:56:43+00:00", "reason": "it smells",
          "sequence": 7}  # fmt: skip


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"session_status": "paused"}, "the session is paused; `anchorwatch resume fleet` resumes it"),
        ({"session_status": "quarantined"}, "`anchorwatch repair fleet` repairs it"),
        ({"kill_switches": [SWITCH]}, "the kill switch of agent keeper is on, by ada since 2026"),
        ({"kill_switches": [SWITCH]}, "(it smells); `anchorwatch kill-switch off --agent keeper`"),
        (
            {"kill_switches": [{**SWITCH, "scope": "workspace", "name": None}]},
            "`anchorwatch kill-switch off --workspace`",
        ),
        ({"kill_switches": None}, ""),
    ],
)
def test_receipt_names_the_reason_that_blocks_the_input(
    run: Run, remote: Gateway, state: dict[str, Any], why: str
) -> None:
    remote.answer("POST /api/sessions/fleet/inputs", (202, {**RECEIPT, **state}))
    remote.answer("POST /api/sessions/fleet/trigger", (202, {**RECEIPT, **state}))
    for said in (run("say", "fleet", "hello").out, run("trigger", "fleet").out):
        assert why in said
        assert said.count("queued: ") == bool(why)


def test_order_names_the_kill_switch_that_blocks_it(run: Run, remote: Gateway) -> None:
    held = {**CONTROL, "session_status": "idle", "kill_switches": [SWITCH]}
    remote.answer("POST /api/sessions/fleet/resume", (200, {**held, "kind": "resumed"}))
    assert "blocked: the kill switch of agent keeper is on" in run("resume", "fleet").out
    remote.answer("POST /api/sessions/fleet/reset", (200, {**held, "kind": "reset"}))
    assert "the canary turn is queued: the kill switch of agent keeper" in run("reset", "fleet", "--yes").out


def test_retried_event_has_the_same_id(run: Run, remote: Gateway) -> None:
    remote.answer("POST /api/events", AWAY, (202, {"id": "x", "sequence": 5, "duplicate": False}))
    ran = run("publish", "fleet", "instance.dead", "--data", '{"id": "w-3"}', "--priority", "P0")
    assert ran.code == 0
    first, second = (asked.body for asked in remote.asked)
    assert first == second
    assert first["source"] == "fleet"
    assert first["type"] == "instance.dead"
    assert first["data"] == {"id": "w-3"}
    assert first["priority"] == "P0"
    assert first["id"].startswith("cli-")


@pytest.mark.parametrize(
    ("data", "more", "priority"),
    [
        ('{"priority": "P0"}', (), "P0"),
        ('{"priority": "P0"}', ("--priority", "P2"), "P2"),
        ("{}", (), "P1"),
        ("[1]", (), "P1"),
    ],
)
def test_event_takes_the_priority_of_its_data(
    run: Run, remote: Gateway, data: str, more: tuple[str, ...], priority: str
) -> None:
    remote.answer("POST /api/events", (202, {"id": "x", "sequence": 5, "duplicate": False}))
    assert run("publish", "fleet", "instance.dead", "--data", data, *more).code == 0
    assert remote.asked[0].body["priority"] == priority


def test_session_is_created_of_an_agent(run: Run, remote: Gateway) -> None:
    remote.answer("POST /api/sessions", (201, {"name": "night", "agent": "keeper", "created": True}))
    assert (
        run("sessions", "create", "night", "--agent", "keeper").out
        == "session night of agent keeper created\n"
    )
    remote.answer("POST /api/sessions", (200, {"name": "night", "agent": "keeper", "created": False}))
    assert "exists already" in run("sessions", "create", "night", "--agent", "keeper").out


@pytest.mark.parametrize("words", [("Night 1", "--agent", "keeper"), ("night", "--agent", "K/1")])
def test_names_are_checked_before_the_request(run: Run, remote: Gateway, words: tuple[str, ...]) -> None:
    ran = run("sessions", "create", *words)
    assert ran.code == 2
    assert "use 1-63 characters of a-z" in ran.err
    assert remote.asked == []


AGENT = """
name = "keeper"
pack = "fleet"
grants = ["launch_instances"]
subscriptions = ["fleet.>"]
heartbeat_s = 60

[limits]
steps_max = 4
"""


def test_agent_file_is_applied(run: Run, remote: Gateway) -> None:
    Path("agent.toml").write_text(AGENT)
    remote.answer("PUT /api/agents/keeper", (200, {"name": "keeper", "version": 3}))
    assert run("agents", "apply", "agent.toml").out == "agent keeper is at version 3\n"
    body = remote.asked[0].body
    assert body["grants"] == ["launch_instances"]
    assert body["limits"]["steps_max"] == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = ", "cannot be read"),
        ("name = 'x'", "pack is missing"),
        ("name = 'Not A Name'\npack = 'fleet'", "name must be 1-63 characters of a-z"),
        ("typo = 1\n" + AGENT, "typo is not a known field"),
    ],
)
def test_faulty_agent_file_is_explained(run: Run, remote: Gateway, text: str, said: str) -> None:
    Path("agent.toml").write_text(text)
    ran = run("agents", "apply", "agent.toml")
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert remote.asked == []


def test_unknown_limit_is_refused_with_the_known_ones(run: Run, remote: Gateway) -> None:
    Path("agent.toml").write_text(AGENT + "turns_per_huor = 9")
    ran = run("agents", "apply", "agent.toml")
    assert ran.code == 2
    assert "limits.turns_per_huor is not a known field" in ran.err
    assert "turns_per_hour" in ran.err
    assert "belong in `config`" in ran.err
    assert remote.asked == []


def test_missing_agent_file_is_not_found(run: Run, remote: Gateway) -> None:
    assert run("agents", "apply", "nowhere.toml").code == 4
    assert remote.asked == []


SETTLED = {"call": "fleet/15.2.1", "verdict": "not-done", "by": "a person", "sequence": 77, "replayed": False}


def test_unknown_effect_is_resolved_once(run: Run, remote: Gateway) -> None:
    remote.answer("POST /api/effects/resolve", AWAY, (200, SETTLED), (200, {**SETTLED, "replayed": True}))
    words = ("effects", "resolve", "fleet/15.2.1", "not-done", "--note", "no such instance", "--key", "k")
    ran = run(*words)
    assert ran.out == "fleet/15.2.1 resolved as not-done by a person (journal sequence 77)\n"
    assert remote.asked[-1].body == {
        "call": "fleet/15.2.1",
        "verdict": "not-done",
        "note": "no such instance",
    }
    assert {asked.headers["idempotency-key"] for asked in remote.asked} == {"k"}
    assert "; already resolved before" in run(*words).out


def test_effect_that_is_resolved_already_is_refused(run: Run, remote: Gateway) -> None:
    conflict = {"code": "conflict", "message": "fleet/15.2.1 was settled at 18:56", "hint": "once"}
    remote.answer("POST /api/effects/resolve", (409, conflict))
    ran = run("effects", "resolve", "fleet/15.2.1", "done")
    assert ran.code == 5
    assert "was settled at 18:56" in ran.err


@pytest.mark.parametrize("words", [("no-call", "done"), ("fleet/15.2.1", "perhaps"), ("fleet/15.2.1",)])
def test_invalid_resolution_is_refused_before_the_request(
    run: Run, remote: Gateway, words: tuple[str, ...]
) -> None:
    assert run("effects", "resolve", *words).code == 2
    assert remote.asked == []


CONTROL = {"control_id": "c-1", "session": "fleet", "kind": "paused", "sequence": 50, "by": "a person", "replayed": False,
           "session_status": "paused", "more": {}, "never_start": [], "too_late": [], "canary": None}  # fmt: skip


def test_order_has_its_reason_and_a_key(run: Run, remote: Gateway) -> None:
    remote.answer("POST /api/sessions/fleet/pause", AWAY, (200, CONTROL))
    ran = run("pause", "fleet", "--reason", "it rains")
    assert ran.out == "fleet: paused (journal sequence 50); status: paused\n"
    assert [asked.body for asked in remote.asked] == [{"reason": "it rains"}] * 2
    assert len({asked.headers["idempotency-key"] for asked in remote.asked}) == 1


def test_cancel_lists_the_commands_it_was_too_late_for(run: Run, remote: Gateway) -> None:
    late = [{"call": "fleet/3.1.2", "tool": "launch", "note": "it may have run"}]
    report = {**CONTROL, "kind": "cancelled", "never_start": ["fleet/3.1.1"], "too_late": late}
    remote.answer("POST /api/sessions/fleet/cancel", (200, report))
    ran = run("cancel", "fleet", "3")
    assert "will not start: fleet/3.1.1\ntoo late for fleet/3.1.2 launch: it may have run" in ran.out


def test_constraint_is_removed_by_its_number(run: Run, remote: Gateway) -> None:
    remote.answer("GET /api/sessions/fleet/anchor", (200, {"constraints": ["a", "b"]}))
    remote.answer("POST /api/sessions/fleet/constraints", (200, CONTROL))
    assert run("constraint", "remove", "fleet", "2").code == 0
    assert remote.asked[-1].body == {"change": "remove", "items": ["b"]}
    assert run("constraint", "remove", "fleet", "3").code == 4


@pytest.mark.parametrize(("verb", "which"), [("objective", "objectives"), ("constraint", "constraints")])
def test_change_of_directives_names_them(run: Run, remote: Gateway, verb: str, which: str) -> None:
    report = {**CONTROL, "kind": "directives", "more": {"which": which, "change": "add"}}
    remote.answer(f"POST /api/sessions/fleet/{which}", (200, report))
    assert run(verb, "add", "fleet", "be kind").out.startswith(f"fleet: {which} changed (journal sequence")


def test_reset_without_a_confirmation_is_refused(run: Run, remote: Gateway) -> None:
    ran = run("reset", "fleet")
    assert (ran.code, remote.asked) == (2, [])
    assert "--dry-run" in ran.err


def test_reset_waits_for_its_canary(run: Run, remote: Gateway) -> None:
    more = {"archived": {"turns": 3}, "superseded": {"count": 2}}
    remote.answer(
        "POST /api/sessions/fleet/reset",
        (200, {**CONTROL, "kind": "reset", "session_status": "idle", "more": more}),
    )
    active = {"status": "active", "inputs_through": 40}
    done = {"status": "idle", "inputs_through": 52, "last_run_id": 7, "last_run_outcome": "no_action"}
    remote.answer("GET /api/sessions/fleet/anchor", (200, active), (200, done))
    ran = run("reset", "fleet", "--yes")
    assert "turns archived: 3\nqueued inputs discarded: 2" in ran.out
    assert "the canary turn ran: turn 7 ended no_action" in ran.out


def test_wakes_clear_discards_queued_inputs(run: Run, remote: Gateway) -> None:
    report = {**CONTROL, "kind": "wakes_cleared", "more": {"superseded": {"count": 4}}}
    remote.answer("POST /api/sessions/fleet/wakes/clear", (200, report))
    assert "queued inputs discarded: 4" in run("wakes", "clear", "fleet").out
    assert run("wakes", "clean", "fleet").code == 2


DELETED: dict[str, Any] = {
    **dict.fromkeys(("control_id", "by", "at", "idempotency_key"), "x"),
    "session": "fleet",
    "kind": "deleted",
    "sequence": 7,
    "replayed": False,
    "session_status": "deleted",
    "run_id": 3,
    "more": {},
    "canary": None,
    "never_start": [],
    "too_late": [],
}


@pytest.mark.parametrize(("said", "code"), [("", 5), ("n\n", 5), ("y\n", 0)])
def test_session_is_deleted_only_after_confirmation(
    run: Run, remote: Gateway, monkeypatch: pytest.MonkeyPatch, said: str, code: int
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(said))
    remote.answer("GET /api/sessions/fleet/anchor", (200, {"status": "idle"}))
    remote.answer("POST /api/sessions/fleet/delete", (200, DELETED))
    ran = run("delete", "fleet")
    assert ran.code == code, ran.err
    assert ("nothing was done" in ran.err) == bool(code)
    assert [each.method for each in remote.asked] == ["GET"] + ["POST"] * (code == 0)


def test_deleting_a_deleted_session_requests_no_confirmation(run: Run, remote: Gateway) -> None:
    remote.answer("GET /api/sessions/fleet/anchor", (200, {"status": "deleted"}))
    gone = {"code": "session_deleted", "message": "the session fleet was deleted", "hint": ""}
    remote.answer("POST /api/sessions/fleet/delete", (410, gone))
    ran = run("delete", "fleet")
    assert ran.code == 5
    assert "was deleted" in ran.err
    assert "?" not in ran.err


TURN = {"run_id": 15, "outcome": "success", "reason": "look succeeded", "ended_at": None}
HANDLED: dict[str, Any] = {"disposition": "ran", "reason": "", "turn": None, "answer": None}
ENDED = {**HANDLED, "turn": {**TURN, "ended_at": "2026-03-17T18:57:00+00:00"}}


def test_say_waits_for_the_answer_and_prints_it_whole(run: Run, remote: Gateway) -> None:
    remote.answer("POST /api/sessions/fleet/inputs", (202, RECEIPT))
    words = "w-7 is well.\nIt runs since noon. " + "x" * 3_000
    remote.answer(
        "GET /api/sessions/fleet/inputs/41",
        (200, {**HANDLED, "disposition": "pending"}),
        (200, {**HANDLED, "turn": TURN}),
        (200, {**ENDED, "answer": {"text": f"{words}\x1b[2J"}}),
    )
    ran = run("say", "fleet", "is w-7 well?", "--wait")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "accepted by fleet as in_1 (journal sequence 41)",
        "turn 15 ended: success - look succeeded",
        "  w-7 is well.",
        f"  It runs since noon. {'x' * 3_000}\\u001b[2J",
    ]


@pytest.mark.parametrize(
    ("receipt", "handled", "code", "words"),
    [
        ({"session_status": "paused"}, {}, 5, "queued, and the session is paused"),
        ({}, {"disposition": "pending"}, 3, "no answer within 1 s"),
        ({}, {"disposition": "superseded", "reason": "reset"}, 0, "superseded: reset"),
    ],
)
def test_say_does_not_wait_for_an_answer_that_cannot_come(
    run: Run, remote: Gateway, receipt: Any, handled: Any, code: int, words: str
) -> None:
    remote.answer("POST /api/sessions/fleet/inputs", (202, {**RECEIPT, **receipt}))
    remote.answer("GET /api/sessions/fleet/inputs/41", (200, {**HANDLED, **handled}))
    ran = run("say", "fleet", "hello", "--wait", "--timeout", "1")
    assert ran.code == code
    assert words in ran.out + ran.err
    assert ("conversation fleet" in ran.err) == (code != 0)
