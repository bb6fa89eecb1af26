"""Sessions, turns, wake-ups and the conversation, from records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from anchorwatch.codec import decode_anchor
from anchorwatch.core.effect.state import Owner
from anchorwatch.core.errors import NotFound
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session.commands import CommitStep, Control, Direct, TakeOver
from anchorwatch.core.session.events import StepHead
from anchorwatch.core.times import from_iso
from anchorwatch.journal.deliveries import Delivery
from anchorwatch.topology.subjects import SessionSubjects

from tests.unit.memory.book import START_MS, WRITER, Book
from tests.unit.memory.conftest import FLEET, WINDOWS, Projected


def test_session_row_follows_its_last_anchor(projected: Projected, book: Book) -> None:
    book.do(FLEET, Direct("test", book.now_ms, "objectives", "set", ("more",)))
    (session,) = projected.list("sessions")
    assert (session["name"], session["agent"], session["agent_version"]) == ("fleet", "keeper", 1)
    assert (session["status"], session["sequence"]) == ("idle", 2)
    assert session["created_at"] < session["changed_at"]
    whole = projected.ask("session")
    assert whole["anchor"] == book.anchor(FLEET).to_json()
    assert (whole["pending_inputs"], whole["effects"], whole["damaged_records"]) == (0, {}, 0)


def test_turn_is_in_progress_waits_continues_and_ends(projected: Projected, book: Book) -> None:
    book.say(FLEET, "k-1")
    book.acquire(FLEET, "turn_a")
    assert projected.ask("turn", turn="turn_a")["status"] == "in_progress"
    first, second = book.step(FLEET, "set", "build", text="two things")
    assert projected.ask("turn", turn="1")["status"] == "waiting"
    book.done(FLEET, first)
    assert projected.ask("turn", turn="1")["status"] == "waiting"
    book.done(FLEET, second, "build", state="failed", error="odd")
    assert projected.ask("turn", turn="1")["status"] == "in_progress"
    book.end(FLEET, text="all is done")
    turn = projected.ask("turn", turn="1")
    assert (turn["status"], turn["outcome"], turn["reason"]) == ("completed", "success", "because")
    assert (turn["steps_count"], turn["inputs_count"], turn["usage"]["prompt"]) == (2, 1, 100)
    assert [step["text"] for step in turn["steps"]] == ["two things", "all is done"]
    assert [(call["tool"], call["state"]) for call in turn["steps"][0]["calls"]] == [
        ("set", "succeeded"),
        ("build", "failed"),
    ]
    assert projected.list("turns") == [{k: v for k, v in turn.items() if k not in ("inputs", "steps")}]


def test_outcome_of_a_turn_decides_its_status(projected: Projected, book: Book) -> None:
    for outcome in ("success", "no_action", "unresolved", "failed", "over_budget"):
        book.acquire(FLEET, f"turn_{outcome}")
        book.end(FLEET, outcome)
    assert [(turn["outcome"], turn["status"]) for turn in projected.list("turns")] == [
        ("success", "completed"),
        ("no_action", "completed"),
        ("unresolved", "completed"),
        ("failed", "failed"),
        ("over_budget", "failed"),
    ]
    assert [turn["run_id"] for turn in projected.list("turns", status="failed")] == [4, 5]


def test_takeover_adds_a_generation_to_the_turn(projected: Projected, book: Book) -> None:
    book.acquire(FLEET, "turn_a")
    book.do(FLEET, TakeOver("planner-2:q", 1, book.now_ms, "its planner died"))
    turn = projected.ask("turn", turn="turn_a")
    assert [(each["generation"], each["execution_id"]) for each in turn["generations"]] == [
        (1, WRITER),
        (2, "planner-2:q"),
    ]
    assert turn["woken_by"] == 1


def test_cancelled_turn_keeps_its_inputs(projected: Projected, book: Book) -> None:
    book.say(FLEET, "k-1")
    book.acquire(FLEET, "turn_a")
    book.do(FLEET, Control(Kind.CANCELLED, "test", book.now_ms, "enough"))
    turn = projected.ask("turn", turn="turn_a")
    assert (turn["status"], turn["outcome"], turn["reason"]) == ("cancelled", "cancelled", "enough")
    assert [wake["disposition"] for wake in projected.inputs()] == ["ran"]


def test_each_input_has_one_disposition(projected: Projected, book: Book) -> None:
    book.say(FLEET, "k-1")
    book.say(FLEET, "k-2")
    book.say(FLEET, "e-1", kind="event", source="fleet", type_="instance.dead", priority=1)
    book.say(FLEET, "e-2", kind="event", source="fleet", type_="old", expires_at_ms=START_MS)
    book.acquire(FLEET, "turn_a")
    book.say(FLEET, "k-3")
    book.step(FLEET, "set")
    wakes = projected.inputs()
    assert [(wake["input_id"], wake["disposition"], wake["run_id"]) for wake in wakes] == [
        ("k-1", "ran", 1),
        ("k-2", "coalesced", 1),
        ("e-1", "ran", 1),
        ("e-2", "expired", 1),
        ("k-3", "pending", None),
    ]
    assert [wake["input_id"] for wake in projected.inputs(disposition="pending")] == ["k-3"]
    assert projected.ask("session")["pending_inputs"] == 1


def test_pending_input_shows_when_it_is_due(projected: Projected, book: Book) -> None:
    for priority in (0, 1, 2):
        book.say(FLEET, f"k-{priority}", priority=priority)
    book.say(FLEET, "t-1", kind="trigger")
    book.acquire(FLEET, "turn_a")
    book.end(FLEET)
    for priority in (0, 1, 2):
        book.say(FLEET, f"l-{priority}", priority=priority)
    wakes = {wake["input_id"]: wake for wake in projected.inputs()}
    check = projected.ask("session")["next_check_at"]
    waits = [from_iso(wakes[id_]["due_at"]) - from_iso(wakes[id_]["accepted_at"]) for id_ in ("l-0", "l-1")]
    assert waits == [WINDOWS.p0_ms, WINDOWS.p1_ms]
    assert wakes["l-2"]["due_at"] == check
    assert "due_at" not in wakes["k-0"]
    book.acquire(FLEET, "turn_b")
    book.say(FLEET, "m-1")
    assert projected.inputs(disposition="pending")[0]["due_at"] is None


def test_deleted_session_refuses_pending_and_later_inputs(projected: Projected, book: Book) -> None:
    book.say(FLEET, "k-1")
    book.do(FLEET, Control(Kind.DELETED, "test", book.now_ms))
    book.say(FLEET, "k-2")
    wakes = projected.inputs()
    assert [(wake["disposition"], wake["reason"]) for wake in wakes] == [
        ("refused", "the session was deleted")
    ] * 2
    assert projected.list("sessions", status="deleted")[0]["name"] == "fleet"
    assert projected.list("turns") == []


def test_conversation_is_in_journal_order(projected: Projected, book: Book) -> None:
    book.say(FLEET, "k-1", "look")
    book.say(FLEET, "e-1", "", kind="event", source="fleet", type_="instance.dead")
    book.acquire(FLEET, "turn_a")
    (call,) = book.step(FLEET, "set", text="I set it")
    book.done(FLEET, call)
    rejected = ((1, "fly", "l", "{", "no JSON"),)
    book.do(FLEET, CommitStep(WRITER, StepHead(2, "", None, None, rejected), ()))
    book.end(FLEET, text="done")
    items = projected.list("items")
    assert [(item["type"], item["role"], item.get("text"), item["step"]) for item in items] == [
        ("message", "user", "look", None),
        ("note", "system", "", None),
        ("observation", "system", "all is well", 1),
        ("message", "assistant", "I set it", 1),
        ("tool_call", "assistant", None, 1),
        ("tool_result", "tool", "done", 1),
        ("tool_call", "assistant", None, 2),
        ("tool_result", "tool", "no JSON", 2),
        ("message", "assistant", "done", 3),
    ]
    assert {item["turn_id"] for item in items} == {"turn_a"}
    assert items[7]["state"] == "rejected"
    assert [item["type"] for item in projected.list("items", type="observation")] == ["observation"]


def test_sessions_and_workspaces_are_separate(projected: Projected, book: Book) -> None:
    other, elsewhere = SessionRef("default", "other"), SessionRef("elsewhere", "fleet")
    for ref in (other, elsewhere):
        book.create(ref)
        book.say(ref, "k-1")
        book.acquire(ref, "turn_x")
        book.step(ref, "set")
    assert [each["name"] for each in projected.list("sessions")] == ["fleet", "other"]
    assert projected.inputs() == projected.list("items") == projected.list("turns") == []
    assert [each["call"] for each in projected.list("effects", session=None)] == ["other/1.1.1"]


def test_each_record_of_a_turn_has_a_timeline_entry(projected: Projected, book: Book) -> None:
    book.say(FLEET, "k-1", "look")
    book.acquire(FLEET, "turn_a")
    (call,) = book.step(FLEET, "set", text="to be sure")
    book.done(FLEET, call, state="refused", rule="grant", text="no grant")
    book.artifact(FLEET, "report.md")
    book.end(FLEET, "failed")
    report = [(entry["what"], entry["why"], entry["who"]) for entry in projected.list("timeline")]
    assert report == [
        ("session created (agent keeper@1)", "", "test"),
        ("message (P0): look", "", "test"),
        ("turn 1 started", "trigger: message (seq 2)", WRITER),
        ("step 1: set(n=1)", "to be sure", WRITER),
        ("set: refused", "grant: no grant", "executor-1:e"),
        ("artifact report.md stored", "text/plain", "test"),
        ("turn 1 ended: failed", "because", WRITER),
    ]
    assert [entry["kind"] for entry in projected.list("timeline", turn="turn_a")] == [
        "input",
        "acquired",
        "command",
        "outcome",
        "turn_ended",
    ]
    assert projected.list("artifacts")[0]["name"] == "report.md"


def test_notification_is_claimed_then_has_a_result(projected: Projected, book: Book) -> None:
    subject = SessionSubjects(FLEET).sent("d-1")
    claim = Delivery(
        "ops", "webhook", 1, ("turn_ended",), "turn 1 ended", "claimed", Owner("notifier-1", "n")
    )
    book.record(subject, Kind.DELIVERY_CLAIMED, claim.to_body())
    (claimed,) = projected.list("deliveries", state="claimed")
    assert (claimed["delivery_id"], claimed["channel"], claimed["record"]) == ("d-1", "ops", 1)
    book.record(subject, Kind.DELIVERY_CLAIMED, replace(claim, owner=Owner("notifier-2", "m")).to_body())
    book.record(subject, Kind.DELIVERY, replace(claim, state="unknown", error="timeout").to_body())
    (ended,) = projected.list("deliveries", channel="ops")
    assert (ended["state"], ended["claims"], ended["owner"]) == ("unknown", 2, "notifier-1")
    assert (ended["error"], ended["kinds"], ended["sequence"]) == (
        "timeout",
        ["turn_ended"],
        claimed["sequence"],
    )
    assert [entry["what"] for entry in projected.list("timeline")][1:] == [
        "notification to ops: sending",
        "notification to ops: sending",
        "notification to ops: unknown",
    ]


def test_answer_of_a_turn_is_found_by_its_message(projected: Projected, book: Book) -> None:
    question = book.say(FLEET, "k-1", "is w-7 well?", by="ada").sequence
    assert projected.ask("input", sequence=question)["turn"] is None
    book.acquire(FLEET, "turn_a")
    (call,) = book.step(FLEET, "look", text="I look")
    running = projected.ask("input", sequence=question)
    assert (running["turn"]["status"], running["answer"]["text"]) == ("waiting", "I look")
    book.done(FLEET, call, "look")
    end = book.end(FLEET, text="w-7 is well.\nIt runs since noon.")
    handled = projected.ask("input", sequence=question)
    assert (handled["disposition"], handled["turn"]["outcome"]) == ("ran", "success")
    assert handled["answer"]["text"] == "w-7 is well.\nIt runs since noon."
    assert projected.ask("session")["last_words"]["text"] == handled["answer"]["text"]
    assert decode_anchor(end.payload)[1].body["answers"] == [question]
    said = [(each["role"], each.get("by"), each["text"]) for each in projected.list("items", type="message")]
    assert said == [
        ("user", "ada", "is w-7 well?"),
        ("assistant", None, "I look"),
        ("assistant", None, handled["answer"]["text"]),
    ]
    assert projected.list("timeline")[-1]["said"] == "w-7 is well. It runs since noon."
    with pytest.raises(NotFound, match="no input at sequence 999"):
        projected.ask("input", sequence=999)


def test_turn_without_a_request_or_words_answers_nothing(projected: Projected, book: Book) -> None:
    assert projected.ask("session")["last_words"] is None
    book.say(FLEET, "e-1", kind="event", priority=1)
    for text in ("All is well.", ""):
        book.acquire(FLEET, f"turn_{len(text)}")
        end = book.end(FLEET, text=text)
        assert "answers" not in decode_anchor(end.payload)[1].body
        book.say(FLEET, "k-2", "hello")
