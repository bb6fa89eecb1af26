"""What a list is narrowed by: a value that nothing can have is refused, and no empty list."""

from __future__ import annotations

import pytest
from anchorwatch.core.errors import BadInput, NotFound

from tests.unit.memory.book import Book
from tests.unit.memory.conftest import FLEET, Projected

CLOSED = {
    ("sessions", "status"): "active",
    ("turns", "status"): "waiting",
    ("items", "type"): "note",
    ("wakes", "disposition"): "superseded",
    ("effects", "state"): "gated",
    ("deliveries", "state"): "unknown",
}


@pytest.mark.parametrize(("verb", "name"), CLOSED)
def test_a_value_that_there_is_not_is_refused_and_those_that_there_are_are_named(
    projected: Projected, book: Book, verb: str, name: str
) -> None:
    del book
    there = CLOSED[verb, name]
    assert projected.list(verb, **{name: there}) == []
    for bogus in ("bogus", "", there.upper()):
        with pytest.raises(BadInput, match=f"there is no {name}") as refused:
            projected.ask(verb, **{name: bogus})
        assert there in refused.value.hint


@pytest.mark.parametrize(
    "verb",
    ["session", "turns", "items", "timeline", "wakes", "effects", "deliveries", "artifacts", "memories"],
)
def test_a_session_that_there_is_not_is_not_found(projected: Projected, book: Book, verb: str) -> None:
    del book
    with pytest.raises(NotFound, match="no session nobody"):
        projected.ask(verb, session="nobody")


def test_a_session_whose_anchor_cannot_be_read_has_lists_all_the_same(projected: Projected) -> None:
    projected.book.create(FLEET)
    projected.book.damage(1)
    projected.book.artifact(FLEET, "a")
    assert len(projected.list("artifacts")) == 1


def test_effects_of_a_turn_need_one_that_there_is(projected: Projected, book: Book) -> None:
    book.acquire(FLEET, "turn_a")
    book.step(FLEET, "set")
    assert len(projected.list("effects", session=None, turn="turn_a")) == 1
    with pytest.raises(NotFound, match="no turn turn_b"):
        projected.ask("effects", session=None, turn="turn_b")
    with pytest.raises(BadInput, match="any session"):
        projected.ask("effects", session=None, turn="1")
