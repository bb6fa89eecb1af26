"""The filters of a list: an impossible value is refused, not answered with an empty list."""

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
def test_unknown_filter_value_is_refused_with_the_known_ones(
    projected: Projected, book: Book, verb: str, name: str
) -> None:
    del book
    there = CLOSED[verb, name]
    assert projected.list(verb, **{name: there}) == []
    for bogus in ("bogus", "", there.upper()):
        with pytest.raises(BadInput, match=f"unknown {name}") as refused:
            projected.ask(verb, **{name: bogus})
        assert there in refused.value.hint


@pytest.mark.parametrize(
    "verb",
    ["session", "turns", "items", "timeline", "wakes", "effects", "deliveries", "artifacts", "memories"],
)
def test_unknown_session_is_not_found(projected: Projected, book: Book, verb: str) -> None:
    del book
    with pytest.raises(NotFound, match="no session nobody"):
        projected.ask(verb, session="nobody")


def test_session_with_an_unreadable_anchor_has_lists(projected: Projected) -> None:
    projected.book.create(FLEET)
    projected.book.damage(1)
    projected.book.artifact(FLEET, "a")
    assert len(projected.list("artifacts")) == 1


def test_effects_of_an_unknown_turn_are_not_found(projected: Projected, book: Book) -> None:
    book.acquire(FLEET, "turn_a")
    book.step(FLEET, "set")
    assert len(projected.list("effects", session=None, turn="turn_a")) == 1
    with pytest.raises(NotFound, match="no turn turn_b"):
        projected.ask("effects", session=None, turn="turn_b")
    with pytest.raises(BadInput, match="ambiguous"):
        projected.ask("effects", session=None, turn="1")
