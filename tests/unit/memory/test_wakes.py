"""Memory lists each wake-up with the disposition that the ledger derives from the journal."""

from __future__ import annotations

from anchorwatch.core.records import Kind
from anchorwatch.core.session.commands import ClearWakes, CommitStep, Control, Reset, Steer
from anchorwatch.core.session.events import StepHead
from anchorwatch.core.session.ledger import read_ledger
from anchorwatch.journal.mapping import read_session_record

from tests.unit.memory.book import WRITER, Book
from tests.unit.memory.conftest import FLEET, Projected


def report(projected: Projected) -> dict[int, tuple[str, int]]:
    shown = projected.list("wakes", limit=200)
    return {each["sequence"]: (each["disposition"], each["run_id"] or 0) for each in shown}


def kept(book: Book) -> dict[int, tuple[str, int]]:
    records = [each for each in map(read_session_record, book.messages) if each is not None]
    return {wake.sequence: (wake.disposition, wake.run) for wake in read_ledger(records).wakes.values()}


def test_each_wake_up_has_the_disposition_of_the_ledger(projected: Projected, book: Book) -> None:
    for n in range(4):
        book.say(FLEET, f"e{n}", kind="event", priority=1, source="fleet", type_="dead")
    book.say(FLEET, "old", kind="event", source="x", type_="y", expires_at_ms=1)
    book.acquire(FLEET, "turn_1")
    first, second = book.step(FLEET, "set", "set")
    said = book.say(FLEET, "m", "hold on")
    steer = book.do(FLEET, Steer("ada", book.now_ms, "turn_1", "not that one"))
    book.done(FLEET, second)
    book.done(FLEET, first)
    head = StepHead(2, "", None, None, joined=(said.sequence, steer.sequence))
    book.do(FLEET, CommitStep(WRITER, head, ()))
    assert report(projected) == kept(book)
    book.end(FLEET)
    book.say(FLEET, "w1")
    book.do(FLEET, ClearWakes("ada", book.now_ms, book.sequence))
    book.say(FLEET, "w2")
    book.acquire(FLEET, "turn_2")
    (late,) = book.step(FLEET, "set")
    book.say(FLEET, "w3")
    book.do(FLEET, Reset("ada", book.now_ms, book.sequence))
    book.done(FLEET, late)
    book.say(FLEET, "w4")
    assert report(projected) == kept(book)
    book.do(FLEET, Control(Kind.DELETED, "ada", book.now_ms))
    book.say(FLEET, "w5")
    shown = report(projected)
    assert shown == kept(book)
    assert {disposition for disposition, _ in shown.values()} == {
        "ran",
        "coalesced",
        "expired",
        "superseded",
        "refused",
    }
    refused = projected.list("wakes", disposition="refused")
    assert [each["reason"] for each in refused] == ["the session was deleted"] * 2
