"""The sentences of a timeline, from records alone."""

from __future__ import annotations

from typing import Any

import pytest
from anchorwatch.bus.port import Stored
from anchorwatch.codec import encode
from anchorwatch.core.effect.state import Claimed, GateAsked, GateDecided, Owner, Released
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.session.commands import Acquire, CommitStep, Control, Direct, TakeOver
from anchorwatch.core.session.events import SnapshotTaken, StepHead
from anchorwatch.journal.mapping import event_body
from anchorwatch.journal.sentences import clip
from anchorwatch.journal.timeline import Entry, narrate
from anchorwatch.topology.subjects import SessionSubjects
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.memory.book import AGENT, WRITER, Book
from tests.unit.memory.conftest import FLEET

SUBJECTS = SessionSubjects(FLEET)
CALL = CallId(1, 2, 3)
OWNER = Owner("executor-1", "i1")


def told(stored: Stored) -> Entry:
    entry = narrate(stored)
    assert entry is not None
    return entry


def test_what_planners_and_people_do_to_a_session_is_told() -> None:
    book = Book()
    book.create(FLEET)
    book.acquire(FLEET, "turn_a")
    lines = [
        (
            book.do(FLEET, TakeOver("planner-2:q", 0, book.now_ms, "it died")),
            "turn 1 goes on under another planner",
        ),
        (book.do(FLEET, Control(Kind.PAUSED, "ada", book.now_ms)), "the session was paused"),
        (book.do(FLEET, Control(Kind.RESUMED, "ada", book.now_ms)), "the session was resumed"),
        (book.do(FLEET, Control(Kind.CANCELLED, "ada", book.now_ms, "enough")), "turn 1 was cancelled"),
        (
            book.do(FLEET, Direct("ada", book.now_ms, "objectives", "set", ())),
            "the objectives were changed",
        ),
        (book.do(FLEET, Control(Kind.DELETED, "ada", book.now_ms)), "the session was deleted"),
    ]
    assert [told(stored).what for stored, _ in lines] == [what for _, what in lines]
    assert told(lines[3][0]).why == "enough"
    assert told(lines[0][0]).ids == {"generation": 2, "run_id": 1, "turn_id": "turn_a"}


def test_a_quarantine_is_told_with_its_reason() -> None:
    book = Book()
    book.create(FLEET)
    entry = told(book.do(FLEET, Control(Kind.QUARANTINED, "mesh", book.now_ms, "sequence 7: damage")))
    assert (entry.what, entry.why) == ("the session was quarantined", "sequence 7: damage")


def test_a_turn_says_what_woke_it() -> None:
    book = Book()
    book.create(FLEET)
    book.say(FLEET, "k-1", "look", by="ada")
    book.say(FLEET, "ev-1", kind="event", source="fleet", type_="instance.dead")
    begun = told(book.acquire(FLEET, "turn_a"))
    assert begun.why == "woken by the event fleet.instance.dead (seq 3) and 1 more"


@pytest.mark.parametrize(
    ("woken_by", "why"), [(1, "woken by the message at journal sequence 1"), (0, "a sweep found it due")]
)
def test_a_turn_whose_record_has_no_words_for_it_says_which_message_its_planner_held(
    woken_by: int, why: str
) -> None:
    book = Book()
    book.create(FLEET)
    assert told(book.do(FLEET, Acquire("turn_a", AGENT, WRITER, woken_by, 1, book.now_ms))).why == why


@pytest.mark.parametrize(
    ("kind", "more", "what"),
    [
        ("message", {"text": "look\n here"}, "a person said (P0): look here"),
        ("trigger", {}, "a person asked for a turn"),
        ("tick", {"type_": "check"}, "the time for a check came"),
        ("canary", {}, "a canary turn is to run behind the reset"),
        ("event", {"source": "fleet", "type_": "a.b", "priority": 1}, "event fleet.a.b was accepted (P1)"),
    ],
)
def test_an_input_says_what_came(kind: str, more: dict[str, Any], what: str) -> None:
    book = Book()
    entry = told(book.say(FLEET, "k-1", more.pop("text", ""), kind=kind, by="ada", **more))
    assert (entry.what, entry.who, entry.ids) == (what, "ada", {"input_id": "k-1"})


def test_a_tick_says_which_input_fell_due() -> None:
    entry = told(Book().say(FLEET, "tick-14", "", kind="tick", type_="tick"))
    assert (entry.what, entry.why) == ("an input that waited fell due", "the one at seq 14")


def test_the_life_of_a_command_is_told() -> None:
    book = Book()
    lines = [
        (book.effect(FLEET, CALL, Claimed(OWNER, 2, "k")), "executor-1 took up the call (attempt 2)"),
        (book.effect(FLEET, CALL, Released(OWNER, "paused")), "executor-1 gave the call back"),
        (book.effect(FLEET, CALL, GateAsked("rule", "b", 1, 1)), "the call waits for a person"),
        (
            book.effect(FLEET, CALL, GateDecided(approved=False, binding="b", by="ada")),
            "a person rejected the call",
        ),
        (book.done(FLEET, CALL, "build", state="unknown", error="timeout"), "build unknown"),
    ]
    assert [told(stored).what for stored, _ in lines] == [what for _, what in lines]
    assert told(lines[4][0]).why == "timeout: done"
    assert told(lines[3][0]).who == "ada"
    assert {told(stored).ids["call"] for stored, _ in lines} == {"fleet/1.2.3"}


def test_a_step_without_commands_is_told_and_a_snapshot_is_not() -> None:
    book = Book()
    book.create(FLEET)
    book.acquire(FLEET, "turn_a")
    rejected = ((1, "fly", "l", "{", "no JSON"),)
    step = book.do(FLEET, CommitStep(WRITER, StepHead(1, "hm", None, None, rejected), ()))
    assert (told(step).what, told(step).why) == ("step 1 asked for no call that could be run", "hm")
    _, body = event_body(SnapshotTaken(book.state(FLEET)))
    assert narrate(book.record(SUBJECTS.log, Kind.SNAPSHOT, body)) is None


def test_an_entry_is_plain_json() -> None:
    entry = Entry(7, 1_770_000_000_000, "default", "fleet", "input", "what", "why", "who", {"input_id": "k"})
    assert entry.to_json() == {
        "sequence": 7,
        "at": "2026-02-02T02:40:00.000+00:00",
        "session": "fleet",
        "kind": "input",
        "what": "what",
        "why": "why",
        "who": "who",
        "input_id": "k",
    }


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_told(payload: bytes) -> None:
    for subject in (SUBJECTS.anchor, SUBJECTS.input("k"), "aw.journal.0.a", "x"):
        assert told(Stored(subject, 1, 1, payload)).kind == "damaged"


@given(st.text())
def test_a_text_is_one_short_line(text: str) -> None:
    line = clip(text, 20)
    assert len(line) <= 20
    assert "\n" not in line


def test_a_record_of_an_unknown_kind_is_told_by_its_name() -> None:
    payload = encode(Record("novelty", 1, "w", {}))[0]
    entry = told(Stored("aw.journal.0.default.fleet.new.thing", 1, 1, payload))
    assert (entry.what, SessionRef(entry.workspace, entry.session)) == ("novelty", FLEET)
