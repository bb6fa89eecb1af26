"""The entries of a timeline: what happened, why, and on which facts."""

from __future__ import annotations

from typing import Any

import pytest
from anchorwatch.bus.port import Stored
from anchorwatch.codec import encode
from anchorwatch.core.effect.state import Claimed, GateAsked, GateDecided, Owner, Released
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.session.commands import (
    Acquire,
    CommitStep,
    Control,
    Direct,
    EndTurn,
    Order,
    PlannedCall,
    TakeOver,
)
from anchorwatch.core.session.events import SnapshotTaken, StepHead
from anchorwatch.core.session.state import SeenObservation
from anchorwatch.journal.mapping import event_body
from anchorwatch.journal.sentences import TEXT_CHARS_MAX, clip
from anchorwatch.journal.timeline import FACT_CHARS_MAX, FACTS_MAX, Entry, Narrator
from anchorwatch.topology.subjects import SessionSubjects
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.memory.book import AGENT, WRITER, Book
from tests.unit.memory.conftest import FLEET, Projected

SUBJECTS = SessionSubjects(FLEET)
CALL = CallId(1, 2, 3)
OWNER = Owner("executor-1", "i1")
FACTS = {"tasks_queued": 5, "fleet_limit": 10, "workers_alive": None, "demand_queued": True}


def entry_of(stored: Stored) -> Entry:
    entry = Narrator().narrate(stored)
    assert entry is not None
    return entry


def running(book: Book) -> Book:
    """The book, with a session whose first turn runs."""
    book.create(FLEET)
    book.acquire(FLEET, "turn_a")
    return book


def head_on(facts: dict[str, Any], step: int = 1, text: str = "5 tasks, no worker", **more: Any) -> StepHead:
    return StepHead(step, text, SeenObservation("d1", 1, "seen", facts), None, **more)


# ------------------------------------------------------------ what and why


def test_changes_by_planners_and_people_have_entries() -> None:
    book = running(Book())
    lines = [
        (book.do(FLEET, TakeOver("planner-2:q", 0, book.now_ms, "it died")), "turn 1 taken over"),
        (book.do(FLEET, Control(Kind.PAUSED, "ada", book.now_ms)), "session paused"),
        (book.do(FLEET, Control(Kind.RESUMED, "ada", book.now_ms)), "session resumed"),
        (book.do(FLEET, Control(Kind.CANCELLED, "ada", book.now_ms, "enough")), "turn 1 cancelled"),
        (book.do(FLEET, Direct("ada", book.now_ms, "objectives", "set", ())), "objectives changed"),
        (book.do(FLEET, Control(Kind.DELETED, "ada", book.now_ms)), "session deleted"),
    ]
    assert [entry_of(stored).what for stored, _ in lines] == [what for _, what in lines]
    assert entry_of(lines[3][0]).why == "enough"
    assert entry_of(lines[0][0]).ids == {"generation": 2, "run_id": 1, "turn_id": "turn_a"}


def test_quarantine_entry_has_its_reason() -> None:
    book = Book()
    book.create(FLEET)
    entry = entry_of(book.do(FLEET, Control(Kind.QUARANTINED, "mesh", book.now_ms, "sequence 7: damage")))
    assert (entry.what, entry.why) == ("session quarantined", "sequence 7: damage")


def test_turn_start_names_its_trigger() -> None:
    book = Book()
    book.create(FLEET)
    book.say(FLEET, "k-1", "", kind="trigger", by="ada")
    book.say(FLEET, "ev-1", kind="event", source="fleet", type_="instance.dead", priority=1)
    started = entry_of(book.acquire(FLEET, "turn_a"))
    assert (started.what, started.why) == (
        "turn 1 started",
        "trigger: event fleet.instance.dead (seq 3), 1 more",
    )


@pytest.mark.parametrize(
    ("woken_by", "why"), [(1, "trigger: journal record 1"), (0, "trigger: periodic sweep")]
)
def test_turn_without_inputs_names_the_held_message(woken_by: int, why: str) -> None:
    book = Book()
    book.create(FLEET)
    assert entry_of(book.do(FLEET, Acquire("turn_a", AGENT, WRITER, woken_by, 1, book.now_ms))).why == why


@pytest.mark.parametrize(
    ("kind", "more", "what", "why"),
    [
        ("message", {"text": "look\n here"}, "message (P0): look here", ""),
        ("trigger", {"text": "a test"}, "turn requested", "a test"),
        ("tick", {"type_": "check"}, "scheduled check", ""),
        ("canary", {}, "canary turn queued after the reset", ""),
        ("event", {"source": "fleet", "type_": "a.b", "priority": 1}, "event fleet.a.b (P1)", ""),
    ],
)
def test_input_entry_names_its_kind(kind: str, more: dict[str, Any], what: str, why: str) -> None:
    entry = entry_of(Book().say(FLEET, "k-1", more.pop("text", ""), kind=kind, by="ada", **more))
    assert (entry.what, entry.why, entry.who, entry.ids) == (what, why, "ada", {"input_id": "k-1"})


def test_end_of_a_debounce_window_names_its_input() -> None:
    entry = entry_of(Book().say(FLEET, "tick-14", "", kind="tick", type_="tick"))
    assert (entry.what, entry.why) == ("debounce window ended", "input at seq 14")


def test_each_record_of_a_command_has_an_entry() -> None:
    book = Book()
    lines = [
        (book.effect(FLEET, CALL, Claimed(OWNER, 2, "k")), "executor-1 started the call (attempt 2)"),
        (book.effect(FLEET, CALL, Released(OWNER, "paused")), "executor-1 released the call"),
        (book.effect(FLEET, CALL, GateAsked("rule", "b", 1, 1)), "approval requested"),
        (book.effect(FLEET, CALL, GateDecided(approved=False, binding="b", by="ada")), "call rejected"),
        (book.done(FLEET, CALL, "build", state="unknown", error="timeout"), "build: unknown"),
    ]
    assert [entry_of(stored).what for stored, _ in lines] == [what for _, what in lines]
    assert entry_of(lines[4][0]).why == "timeout: done"
    assert entry_of(lines[3][0]).who == "ada"
    assert {entry_of(stored).ids["call"] for stored, _ in lines} == {"fleet/1.2.3"}


def test_step_without_valid_call_names_the_problem() -> None:
    book = running(Book())
    rejected = ((1, "fly", "l", "{", "invalid arguments: not JSON"), (2, "swim", "m", "{", "invalid"))
    entry = entry_of(book.do(FLEET, CommitStep(WRITER, head_on({}, text="hm", rejected=rejected), ())))
    assert entry.what == "step 1: no valid call (fly: invalid arguments: not JSON, 1 more)"
    assert entry.why == "hm"


def test_snapshot_has_no_entry() -> None:
    book = running(Book())
    _, body = event_body(SnapshotTaken(book.state(FLEET)))
    assert Narrator().narrate(book.record(SUBJECTS.log, Kind.SNAPSHOT, body)) is None


# ------------------------------------------------------------ facts, data and changes


def test_decision_shows_its_reason_and_its_facts(projected: Projected, book: Book) -> None:
    book.acquire(FLEET, "turn_a")
    call = PlannedCall(1, "launch", {"count": 2, "zone": "eu"}, "l", "default", "fleet")
    stored = book.do(FLEET, CommitStep(WRITER, head_on(FACTS, calls=1), (call,)))
    entry = entry_of(stored)
    assert entry.what == 'step 1: launch(count=2, zone="eu")'
    assert entry.why == "5 tasks, no worker"
    assert entry.details == {"facts": FACTS}
    (row,) = [each for each in projected.list("timeline") if each["sequence"] == stored.sequence]
    assert row["facts"] == FACTS
    assert row["facts"]["workers_alive"] is None


def test_end_of_a_turn_shows_the_facts_of_its_last_step() -> None:
    book = running(Book())
    end = EndTurn(WRITER, "no_action", "nothing to do", {}, book.now_ms, head_on(FACTS), None, book.now_ms)
    entry = entry_of(book.do(FLEET, end))
    assert (entry.what, entry.why) == ("turn 1 ended: no_action", "nothing to do")
    assert entry.details == {"said": "5 tasks, no worker", "facts": FACTS}


def test_decision_names_the_model_that_answered() -> None:
    book = running(Book())
    context = {"model": "large", "in_vain": [["small", "model_unavailable"]]}
    entry = entry_of(book.do(FLEET, CommitStep(WRITER, head_on(FACTS, context=context), ())))
    assert entry.why == "5 tasks, no worker; model large, after small (model_unavailable) failed"


def test_facts_and_texts_of_an_entry_are_bounded() -> None:
    book = running(Book())
    facts = {f"fact_{n}": "x" * 1_000 for n in range(FACTS_MAX + 7)}
    args = {"list": "y" * 10_000}
    call = PlannedCall(1, "launch", args, "l", "default", "fleet")
    entry = entry_of(book.do(FLEET, CommitStep(WRITER, head_on(facts, text="z" * 9_000, calls=1), (call,))))
    assert len(entry.details["facts"]) == FACTS_MAX
    assert entry.details["facts_omitted"] == 7
    assert {len(value) for value in entry.details["facts"].values()} == {FACT_CHARS_MAX}
    assert max(len(entry.what), len(entry.why)) <= TEXT_CHARS_MAX + len("step 1: ")


def test_fact_that_is_not_a_json_number_becomes_text() -> None:
    book = running(Book())
    entry = entry_of(book.do(FLEET, CommitStep(WRITER, head_on({"rate": float("nan")}), ())))
    assert entry.details == {"facts": {"rate": "nan"}}


def test_event_shows_its_data_in_short(projected: Projected, book: Book) -> None:
    data = {"instance": "i-3", "exit_code": 137, "log": "x" * 1_000}
    stored = book.say(FLEET, "ev-1", kind="event", source="fleet", type_="a.b", data=data)
    (row,) = [each for each in projected.list("timeline") if each["sequence"] == stored.sequence]
    assert row["data"].startswith('instance="i-3", exit_code=137, log="xx')
    assert len(row["data"]) == TEXT_CHARS_MAX


def test_order_shows_each_change_from_and_to(projected: Projected, book: Book) -> None:
    orders: list[Order] = [
        Direct("ada", book.now_ms, "objectives", "add", ("no loss",)),
        Control(Kind.PAUSED, "ada", book.now_ms, "it rains"),
        Control(Kind.RESUMED, "ada", book.now_ms),
    ]
    at = [book.do(FLEET, order).sequence for order in orders]
    rows = {each["sequence"]: each for each in projected.list("timeline")}
    assert [rows[sequence]["changes"] for sequence in at] == [
        {"objectives": {"from": ["objective"], "to": ["objective", "no loss"]}},
        {"status": {"from": "idle", "to": "paused"}},
        {"status": {"from": "paused", "to": "idle"}},
    ]
    assert rows[at[1]]["why"] == "it rains"
    assert "changes" not in rows[1], "the first anchor has none before it"


def test_live_entry_of_directives_omits_the_unknown_value() -> None:
    book = Book()
    book.create(FLEET)
    entry = entry_of(book.do(FLEET, Direct("ada", book.now_ms, "objectives", "set", ("a", "b"))))
    assert entry.details == {"changes": {"objectives": {"to": ["a", "b"]}}}


def test_narrator_of_a_stream_remembers_the_last_anchor() -> None:
    book = Book()
    book.create(FLEET)
    book.say(FLEET, "k-1")
    book.do(FLEET, Control(Kind.PAUSED, "ada", book.now_ms))
    narrator = Narrator()
    entries = [narrator.narrate(stored) for stored in book.messages]
    assert entries[-1] is not None
    assert entries[-1].details == {"changes": {"status": {"from": "idle", "to": "paused"}}}


def test_planner_change_shows_no_changed_fields(projected: Projected, book: Book) -> None:
    book.acquire(FLEET, "turn_a")
    book.end(FLEET)
    assert all("changes" not in each for each in projected.list("timeline"))


# ------------------------------------------------------------ form


def test_entry_is_plain_json() -> None:
    ids, details = {"input_id": "k"}, {"data": "a=1"}
    entry = Entry(7, 1_770_000_000_000, "default", "fleet", "input", "what", "why", "who", ids, details)
    assert entry.to_json() == {
        "sequence": 7,
        "at": "2026-02-02T02:40:00.000+00:00",
        "session": "fleet",
        "kind": "input",
        "what": "what",
        "why": "why",
        "who": "who",
        "input_id": "k",
        "data": "a=1",
    }


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_have_a_damaged_entry(payload: bytes) -> None:
    for subject in (SUBJECTS.anchor_change, SUBJECTS.input("k"), "aw.journal.0.a", "x"):
        assert entry_of(Stored(subject, 1, 1, payload)).kind == "damaged"


@given(st.text())
def test_clipped_text_is_one_bounded_line(text: str) -> None:
    line = clip(text, 20)
    assert len(line) <= 20
    assert "\n" not in line


def test_record_of_an_unknown_kind_is_named() -> None:
    payload = encode(Record("novelty", 1, "w", {}))[0]
    entry = entry_of(Stored("aw.journal.0.default.fleet.new.thing", 1, 1, payload))
    assert (entry.what, SessionRef(entry.workspace, entry.session)) == ("novelty", FLEET)
