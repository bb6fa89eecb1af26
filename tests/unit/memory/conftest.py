"""Projections of a journal that a test writes by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session.wakes import Windows
from anchorwatch_memory.reads import lists, memories, turns
from anchorwatch_memory.store import MEMORY, Store

from tests.unit.memory.book import Book

FLEET = SessionRef("default", "fleet")
WINDOWS = Windows(2_000, 10_000)
Question = Callable[[sqlite3.Connection, dict[str, Any]], dict[str, Any]]
QUESTIONS: dict[str, Question] = {
    "sessions": lists.sessions,
    "session": lists.session,
    "turns": turns.turns,
    "turn": turns.turn,
    "items": lists.items,
    "timeline": lists.timeline,
    "input": turns.of_input,
    "wakes": lambda db, params: lists.wakes(db, params, WINDOWS),
    "effects": lists.effects,
    "deliveries": lists.deliveries,
    "artifacts": lists.artifacts,
    "artifact": lists.artifact,
    "memories": memories.memories,
    "stats": lambda db, _params: lists.stats(db),
}


@dataclass
class Projected:
    """A journal and queries on its projections. New records are projected before each query."""

    book: Book = field(default_factory=Book)
    store: Store = field(default_factory=lambda: Store(MEMORY))

    def ask(self, verb: str, **params: Any) -> dict[str, Any]:
        self.store.project(self.book.messages)
        given = {"workspace": "default", "session": "fleet", **params}
        return self.store.read(lambda db: QUESTIONS[verb](db, given))[0]

    def inputs(self, **params: Any) -> list[dict[str, Any]]:
        """The wake-ups that are inputs."""
        return [each for each in self.list("wakes", **params) if each["kind"] not in ("control", "outcome")]

    def list(self, verb: str, **params: Any) -> list[dict[str, Any]]:
        page = self.ask(verb, **params)
        assert page["next"] is None
        data: list[dict[str, Any]] = page["data"]
        return data


@pytest.fixture
def projected() -> Iterator[Projected]:
    made = Projected()
    yield made
    made.store.close()


@pytest.fixture
def book(projected: Projected) -> Book:
    """The journal, with a new session."""
    projected.book.create(FLEET)
    return projected.book
