"""The file: batches, snapshots, damage to the file itself, pages."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.core.effect.state import Claimed, Owner
from anchorwatch.core.errors import BadInput
from anchorwatch_memory.reads.pages import PAGE_BYTES_MAX, fit
from anchorwatch_memory.store import MEMORY, Store
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.memory.book import Book
from tests.unit.memory.conftest import FLEET, Projected
from tests.unit.memory.test_effects import ELSEWHERE, OTHER, forget, keep


def a_life() -> Book:
    """A journal with every kind of record."""
    book = Book()
    for ref in (FLEET, OTHER, ELSEWHERE):
        book.create(ref)
        book.say(ref, "k-1")
        book.acquire(ref, "turn_a")
        (call,) = book.step(ref, "set", text="so")
        book.effect(ref, call, Claimed(Owner("executor-1", "i"), 1, "key"))
        book.done(ref, call)
        book.artifact(ref, "report")
        book.end(ref, text="done")
        memory_id = keep(book, ref, "words to find")
    forget(book, ELSEWHERE, memory_id)
    book.damage(5)
    return book


LIFE = a_life()


def projected_in(*cuts: int) -> dict[str, Any]:
    store = Store(MEMORY)
    for start, end in zip([0, *cuts], [*cuts, len(LIFE.messages)], strict=True):
        # As a redelivery does: what was projected before comes again.
        store.project(LIFE.messages[max(0, start - 3) : end])
    dump = store.dump()
    store.close()
    return dump


WHOLE = projected_in()


@settings(deadline=None)
@given(st.lists(st.integers(0, len(LIFE.messages)), max_size=6))
def test_content_is_independent_of_batch_boundaries(cuts: list[int]) -> None:
    assert projected_in(*sorted(cuts)) == WHOLE


def test_failed_batch_leaves_the_file_unchanged(tmp_path: Path) -> None:
    store = Store(tmp_path / "x.db")
    store.project(LIFE.messages[:10])
    before = store.dump()

    def failing() -> Any:
        yield from LIFE.messages[10:20]
        raise RuntimeError("the process dies here")

    with pytest.raises(RuntimeError):
        store.project(failing())
    assert store.dump() == before
    store.project(LIFE.messages)
    assert store.dump() == WHOLE
    store.close()


def test_reader_sees_one_snapshot_with_its_position(tmp_path: Path) -> None:
    writer, reader = Store(tmp_path / "x.db"), Store(tmp_path / "x.db")
    writer.project(LIFE.messages[:10])

    def count_twice(db: sqlite3.Connection) -> tuple[int, int]:
        first = db.execute("SELECT count(*) FROM timeline").fetchone()[0]
        writer.project(LIFE.messages)
        return first, db.execute("SELECT count(*) FROM timeline").fetchone()[0]

    (first, second), as_of = reader.read(count_twice)
    assert first == second
    assert as_of == 10
    assert reader.position().sequence == len(LIFE.messages)
    writer.close()
    reader.close()


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + b"\xff" * 5000])
def test_unusable_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(content)
    store = Store(path)
    assert store.position().sequence == 0
    store.project(LIFE.messages)
    assert store.dump() == WHOLE
    store.close()


def test_file_of_another_schema_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    store = Store(path)
    store.project(LIFE.messages)
    store.close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 999")
    db.close()
    store = Store(path)
    assert store.position().sequence == 0
    store.close()


def test_reset_empties_the_file(tmp_path: Path) -> None:
    store = Store(tmp_path / "x.db")
    store.project(LIFE.messages)
    store.reset()
    assert store.position().sequence == 0
    store.project(LIFE.messages)
    assert store.dump() == WHOLE
    store.close()


# --- pages


def test_pages_hold_every_entry_once_in_both_directions(projected: Projected, book: Book) -> None:
    for n in range(11):
        book.say(FLEET, f"k-{n}", f"text {n}")
    for order in ("asc", "desc"):
        found: list[int] = []
        cursor = None
        while True:
            page = projected.ask("wakes", limit=3, order=order, cursor=cursor)
            found += [wake["sequence"] for wake in page["data"]]
            cursor = page["next"]
            if cursor is None:
                break
            # What comes meanwhile does not move what was there.
            if order == "desc":
                book.say(FLEET, f"l-{len(found)}")
        expected = list(range(1, 13))
        assert found == (expected if order == "asc" else expected[::-1])


def test_cursor_is_valid_for_its_list_and_order_only(projected: Projected, book: Book) -> None:
    for n in range(3):
        book.say(FLEET, f"k-{n}")
    cursor = projected.ask("wakes", limit=1)["next"]
    for verb, params in (
        ("timeline", {"cursor": cursor}),
        ("wakes", {"cursor": cursor, "order": "desc"}),
        ("wakes", {"cursor": "é"}),
        ("wakes", {"cursor": "%%%"}),
        ("wakes", {"cursor": "W10"}),
        ("wakes", {"cursor": 3}),
        ("wakes", {"limit": 0}),
        ("wakes", {"limit": 201}),
        ("wakes", {"limit": True}),
        ("wakes", {"limit": "5"}),
        ("wakes", {"order": "up"}),
        ("wakes", {"disposition": 3}),
    ):
        with pytest.raises(BadInput):
            projected.ask(verb, **params)


def test_page_is_bounded_in_bytes(projected: Projected, book: Book) -> None:
    for n in range(12):
        book.say(FLEET, f"k-{n}", "x" * 100_000)
    page = projected.ask("wakes", limit=200)
    assert 1 <= len(page["data"]) < 12
    assert sum(len(wake["text"]) for wake in page["data"]) <= PAGE_BYTES_MAX
    rest = projected.ask("wakes", limit=200, cursor=page["next"])
    assert rest["data"][0]["sequence"] == page["data"][-1]["sequence"] + 1


def test_entry_larger_than_a_page_is_clipped_and_says_so() -> None:
    entry: dict[str, Any] = {"a": "\x01" * 500_000, "b": [{"c": "x" * 500_000}], "n": 1}
    clipped, size = fit(entry)
    assert size <= PAGE_BYTES_MAX
    assert clipped["clipped"] is True
    assert clipped["n"] == 1
    assert fit({"a": "x"}) == ({"a": "x"}, 10)
