"""Effects and durable memories, from records."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from anchorwatch.core.effect.state import Claimed, Owner, Released
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.packs.port import ToolFailed
from anchorwatch.topology.subjects import SessionSubjects
from anchorwatch_memory.reads import memories
from anchorwatch_memory.tools import remember

from tests.unit.memory.book import Book
from tests.unit.memory.conftest import FLEET, Projected

ONE, TWO = Owner("executor-1", "i1"), Owner("executor-2", "i9")
OTHER = SessionRef("default", "other")
ELSEWHERE = SessionRef("elsewhere", "fleet")


@pytest.fixture
def call(book: Book) -> CallId:
    book.acquire(FLEET, "turn_a")
    return book.step(FLEET, "set")[0]


def effect(projected: Projected) -> dict[str, Any]:
    (found,) = projected.list("effects")
    return found


def test_command_is_pending_then_claimed_then_done(projected: Projected, book: Book, call: CallId) -> None:
    assert effect(projected)["state"] == "pending"
    assert effect(projected)["call"] == "fleet/1.1.1"
    claim = book.effect(FLEET, call, Claimed(ONE, 1, "key"))
    claimed = effect(projected)
    assert (claimed["state"], claimed["owner"], claimed["incarnation"]) == ("claimed", "executor-1", "i1")
    assert (claimed["claim_sequence"], claimed["attempts"], claimed["effect_key"]) == (
        claim.sequence,
        1,
        "key",
    )
    done = book.done(FLEET, call, data={"id": 7}, effect_key="key", claim_sequence=claim.sequence)
    ended = effect(projected)
    assert (ended["state"], ended["text"], ended["data"]) == ("succeeded", "done", {"id": 7})
    assert (ended["outcome_sequence"], ended["owner"]) == (done.sequence, "executor-1")
    assert ended["decided_at"] < ended["claimed_at"] < ended["ended_at"]


def test_effect_shows_the_owner_after_release_and_takeover(
    projected: Projected, book: Book, call: CallId
) -> None:
    book.effect(FLEET, call, Claimed(ONE, 1, "key"))
    book.effect(FLEET, call, Released(ONE, "paused"))
    released = effect(projected)
    assert (released["state"], released["owner"], released["claim_sequence"]) == ("pending", None, None)
    book.effect(FLEET, call, Claimed(TWO, 2, "key"))
    assert (effect(projected)["owner"], effect(projected)["attempts"]) == ("executor-2", 2)


def test_person_resolves_an_unknown_outcome(projected: Projected, book: Book, call: CallId) -> None:
    book.done(FLEET, call, state="unknown", error="owner_died")
    assert projected.ask("stats")["effects"] == {"unknown": 1}
    assert projected.ask("turn", turn="1")["status"] == "in_progress"
    book.done(FLEET, call, state="resolved", by="ada")
    resolved = effect(projected)
    assert (resolved["state"], resolved["settled_by"], resolved["error"]) == ("resolved", "ada", "")
    assert projected.list("effects", state="unknown") == []
    assert [each["tool"] for each in projected.list("effects", tool="set", turn="1")] == ["set"]


def test_late_result_is_counted_and_changes_nothing(projected: Projected, book: Book, call: CallId) -> None:
    book.done(FLEET, call, state="unknown")
    book.record(SessionSubjects(FLEET).late(call), Kind.LATE, {"state": "succeeded", "text": "it worked"})
    late = effect(projected)
    assert (late["state"], late["late"]) == ("unknown", 1)
    assert projected.list("timeline")[-1]["why"] == "it worked"


def test_outcome_of_a_damaged_command_is_listed(projected: Projected, book: Book, call: CallId) -> None:
    book.done(FLEET, call)
    book.damage(3)
    found = effect(projected)
    assert (found["call"], found["tool"], found["state"]) == ("fleet/1.1.1", "set", "succeeded")


# --- durable memory


def keep(book: Book, ref: SessionRef, text: str, topic: str = "", key: str | None = None) -> str:
    result = remember({"text": text, "topic": topic}, key or f"{ref}/{book.sequence}")
    book.acquire(ref, f"turn_{book.sequence}")
    (call,) = book.step(ref, "remember", pool="memory")
    book.done(ref, call, "remember", "memory", text=result.text, data=dict(result.data))
    book.end(ref)
    memory_id: str = result.data["memory"]["id"]
    return memory_id


def forget(book: Book, ref: SessionRef, memory_id: str) -> None:
    book.acquire(ref, f"turn_{book.sequence}")
    (call,) = book.step(ref, "forget", pool="memory")
    book.done(ref, call, "forget", "memory", data={"forgotten": {"id": memory_id}})
    book.end(ref)


def test_memory_is_the_outcome_of_its_command(projected: Projected, book: Book) -> None:
    memory_id = keep(book, FLEET, "w-3 hangs under load", "workers")
    (found,) = projected.list("memories", session=None)
    assert found["memory_id"] == memory_id
    assert (found["text"], found["topic"], found["call"]) == (
        "w-3 hangs under load",
        "workers",
        "fleet/1.1.1",
    )
    assert projected.list("memories", session=None, topic="none") == []


def test_repeated_effect_key_is_one_memory(projected: Projected, book: Book) -> None:
    assert keep(book, FLEET, "a", key="k") == keep(book, FLEET, "a", key="k")
    assert len(projected.list("memories", session=None)) == 1


def test_outcome_of_another_pool_makes_no_memory(projected: Projected, book: Book) -> None:
    book.acquire(FLEET, "turn_a")
    first, second = book.step(FLEET, "remember", "remember")
    book.done(FLEET, first, "remember", data={"memory": {"id": "mem-x", "text": "forged"}})
    book.done(FLEET, second, "remember", state="failed", data={"memory": {"id": "mem-y", "text": "failed"}})
    assert projected.list("memories", session=None) == []


def test_forgotten_memory_leaves_list_and_search_for_good(projected: Projected, book: Book) -> None:
    memory_id = keep(book, FLEET, "the password is swordfish", key="k")
    forget(book, FLEET, memory_id)
    forget(book, FLEET, memory_id)
    keep(book, FLEET, "the password is swordfish", key="k")
    assert projected.list("memories", session=None) == []
    assert projected.list("memories", session=None, q="swordfish") == []
    assert "swordfish" not in str(projected.store.dump()["withdrawals"])


@pytest.fixture(params=["words", "plain"])
def find(request: pytest.FixtureRequest, projected: Projected) -> Callable[[str], list[str]]:
    """The texts that a search finds, with and without the full-text index."""

    def search(query: str) -> list[str]:
        return [each["text"] for each in projected.list("memories", session=None, q=query)]

    def search_plainly(query: str) -> list[str]:
        projected.store.project(projected.book.messages)
        words = memories._WORD.findall(query)  # noqa: SLF001 - the fallback alone

        def plain(db: sqlite3.Connection) -> list[str]:
            return [row["text"] for row in memories._search_plainly(db, "default", words, 50)]  # noqa: SLF001 - as above

        return projected.store.read(plain)[0] if words else []

    return search if request.param == "words" else search_plainly


def test_search_lists_the_best_match_first(book: Book, find: Callable[[str], list[str]]) -> None:
    book.create(OTHER)
    book.create(ELSEWHERE)
    keep(book, FLEET, "w-3 hangs under load")
    keep(book, OTHER, "restart a worker that hangs, 100% of the time", "hangs")
    keep(book, ELSEWHERE, "it hangs here too")
    keep(book, FLEET, "nothing of note")
    assert set(find("hangs")) == {"w-3 hangs under load", "restart a worker that hangs, 100% of the time"}
    assert find("restart worker hangs")[0].startswith("restart")
    assert find("100") == ["restart a worker that hangs, 100% of the time"]
    for odd in ('"', "NEAR(", "a OR", "*", "text:", "%", "' --", ""):
        find(odd)
    assert find("_") == []


def test_invalid_argument_of_remember_is_refused() -> None:
    for args in ({}, {"text": ""}, {"text": 3}, {"text": "x" * 9_000}, {"text": "a", "topic": 3}):
        with pytest.raises(ToolFailed):
            remember(args, "k")
    assert remember({"text": "a"}, "k") == remember({"text": "a", "topic": ""}, "k")
