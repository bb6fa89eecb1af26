"""Records that cannot be trusted are reported and counted, and later records are projected."""

from __future__ import annotations

from typing import Any

import pytest
from anchorwatch.codec import encode, pack
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind, Record
from anchorwatch.topology.subjects import SessionSubjects
from anchorwatch_memory.store import MEMORY, Store
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.memory.book import Book
from tests.unit.memory.conftest import FLEET, Projected

SUBJECTS = SessionSubjects(FLEET)
CALL = CallId(1, 1, 1)
REGISTERS = (
    SUBJECTS.input("k-1"),
    SUBJECTS.anchor_change,
    SUBJECTS.anchor_turn,
    SUBJECTS.log,
    SUBJECTS.command("default"),
    SUBJECTS.effect("default", CALL, "gate"),
    SUBJECTS.effect("default", CALL, "claim"),
    SUBJECTS.effect("memory", CALL, "done"),
    SUBJECTS.effect("memory", CALL, "unknown"),
    SUBJECTS.late(CALL),
    SUBJECTS.artifact("a"),
    SUBJECTS.sent("d"),
    "aw.journal.0.default.fleet.new.register",
    "aw.journal.0.default.fleet.fx.default.one.1.1.done",
    "aw.journal.0.x",
)


def after(projected: Projected, book: Book) -> list[dict[str, Any]]:
    """The damaged entries, after a check that the projection continued."""
    book.say(FLEET, "k-last", "still here")
    assert projected.list("wakes")[-1]["text"] == "still here"
    return [entry for entry in projected.list("timeline") if entry["kind"] == "damaged"]


def test_altered_record_is_damaged_in_timeline_and_counted(projected: Projected, book: Book) -> None:
    altered = book.say(FLEET, "k-1")
    book.damage(altered.sequence)
    (report,) = after(projected, book)
    assert report["sequence"] == altered.sequence
    assert "digest" in report["why"]
    assert projected.ask("session")["damaged_records"] == projected.ask("stats")["damaged"] == 1


def test_altered_planner_record_has_one_damaged_entry(projected: Projected, book: Book) -> None:
    acquire = book.acquire(FLEET, "turn_a")
    book.end(FLEET)
    book.acquire(FLEET, "turn_b")
    book.damage(acquire.sequence)
    (report,) = after(projected, book)
    assert report["sequence"] == acquire.sequence
    assert [turn["turn_id"] for turn in projected.list("turns")] == ["turn_b"]


def test_missing_planner_record_is_reported_at_the_next(projected: Projected, book: Book) -> None:
    acquire = book.acquire(FLEET, "turn_a")
    end = book.end(FLEET)
    del book.messages[acquire.sequence - 1]
    projected.store.project(book.messages)
    assert projected.ask("stats")["damaged"] == 1
    entry = next(entry for entry in projected.list("timeline") if entry["sequence"] == end.sequence)
    assert entry["kind"] == "turn_ended"
    assert "missing or was altered" in entry["why"]


@pytest.mark.parametrize("subject", REGISTERS)
@pytest.mark.parametrize(
    "payload", [b"", b"\xc1", b"{}", b"null", pack([9, "x"]), pack([1] * 7), b"\xff" * 50]
)
def test_invalid_bytes_do_not_stop_the_projection(
    projected: Projected, book: Book, subject: str, payload: bytes
) -> None:
    book.put(subject, payload)
    report = after(projected, book)
    assert [entry["sequence"] for entry in report] == (
        [2] if subject.startswith("aw.journal.0.default") else []
    )
    assert projected.ask("stats")["damaged"] == 1


ODD_BODIES: list[tuple[str, str, dict[str, Any]]] = [
    (SUBJECTS.input("k"), Kind.INPUT, {}),
    (SUBJECTS.input("k"), Kind.INPUT, {"kind": [], "priority": 0}),
    (SUBJECTS.input("k"), Kind.INPUT, {"kind": "message", "priority": 2**63}),
    (SUBJECTS.input("k"), Kind.INPUT, {"kind": "message", "priority": 0, "text": None}),
    (SUBJECTS.command("default"), Kind.COMMAND, {"run": 1}),
    (SUBJECTS.log, "odd", {}),
    (SUBJECTS.log, Kind.STEP, {"run": "x", "step": 3}),
    (SUBJECTS.effect("default", CALL, "claim"), Kind.CLAIM, {"owner": 3}),
    (
        SUBJECTS.effect("default", CALL, "claim"),
        Kind.CLAIM,
        {"owner": [[], []], "attempt": 1, "effect_key": 1},
    ),
    (SUBJECTS.effect("default", CALL, "done"), "odd", {}),
    (SUBJECTS.artifact("a"), Kind.ARTIFACT, {"name": "x"}),
    (SUBJECTS.sent("d"), Kind.DELIVERY, {"attempts": "x"}),
]


@pytest.mark.parametrize(("subject", "kind", "body"), ODD_BODIES)
def test_record_of_an_odd_shape_leaves_no_partial_rows(
    projected: Projected, book: Book, subject: str, kind: str, body: dict[str, Any]
) -> None:
    projected.ask("stats")
    before = projected.store.dump()
    book.record(subject, kind, body)
    projected.ask("stats")
    changed = {name for name, rows in projected.store.dump().items() if rows != before[name]}
    assert changed <= {"timeline", "progress", "chains"}
    assert len(after(projected, book)) == 1


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIELDS = (
    "kind",
    "priority",
    "text",
    "run",
    "step",
    "n",
    "calls",
    "owner",
    "attempt",
    "effect_key",
    "call",
    "tool",
)
MORE = (
    "state",
    "data",
    "turn",
    "durable",
    "memory",
    "forgotten",
    "name",
    "head",
    "args",
    "observation",
    "channel",
)
KINDS = [value for name, value in vars(Kind).items() if name.isupper()]


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.sampled_from(REGISTERS),
            st.sampled_from(KINDS),
            st.dictionaries(st.sampled_from(FIELDS + MORE), plain, max_size=8),
        ),
        max_size=5,
    )
)
def test_no_record_stops_the_projection(records: list[tuple[str, str, dict[str, Any]]]) -> None:
    book = Book()
    book.create(FLEET)
    for subject, kind, body in records:
        book.put(subject, encode(Record(kind, 1, "w", body))[0])
    store = Store(MEMORY)
    assert store.project(book.messages).sequence == len(book.messages)
    store.close()
