"""Dead letters as a machine: what is shown to people, when, and what an order changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from anchorwatch.core.errors import Damaged, Fenced, IdempotencyConflict, NewerSchema, Refused, Unavailable
from anchorwatch.core.letters import (
    ACTIONS_MAX,
    CLOSED,
    WAITING,
    Action,
    Address,
    DeadLetter,
    Fault,
    Verb,
    answered,
    counts,
    early_ms,
    failed,
    handled,
    ordered,
    shown,
    started,
)
from hypothesis import given
from hypothesis import strategies as st

ADDRESS = Address("default", "observer", "events-7", "event", "EVENTS", 7, "aw.event.default.x", 1)
FAULT = Fault("damaged", "not a record")
TRIES = 8
HOUR_MS = 3_600_000


def fail(letter: DeadLetter | None, now_ms: int) -> DeadLetter:
    after = failed(letter, ADDRESS, FAULT, now_ms, TRIES)
    assert after is not None
    return after


def opened() -> DeadLetter:
    letter = None
    for n in range(TRIES):
        letter = fail(letter, n * 60_000)
    assert letter is not None
    return letter


def action(verb: Verb, key: str = "k", note: str = "") -> Action:
    return Action(verb, "a person", 999_000, key, note)


def test_letter_opens_at_the_last_try_after_minutes() -> None:
    letter, now_ms, states = None, 0, []
    for _ in range(TRIES):
        letter = fail(letter, now_ms)
        states.append(letter.state)
        now_ms = letter.due_at_ms
    assert states == ["failing"] * 7 + ["open"]
    assert now_ms >= 120_000


def test_failure_before_the_retry_time_does_not_count() -> None:
    letter = fail(None, 0)
    assert failed(letter, ADDRESS, FAULT, letter.due_at_ms - 1, TRIES) is None
    assert fail(letter, letter.due_at_ms).tries == 2


def test_time_written_by_a_clock_ahead_is_not_awaited() -> None:
    letter = fail(fail(None, HOUR_MS), HOUR_MS + 1_000)
    assert early_ms(letter, HOUR_MS + 1_000) == 2_000
    assert early_ms(letter, 0) == 0, "the clock was set back since"
    assert fail(letter, 0).tries == 3


@pytest.mark.parametrize(
    ("error", "does"),
    [
        (ZeroDivisionError("x"), True),
        (Damaged(), True),
        (Unavailable(), False),
        (Fenced(), False),
        (NewerSchema(), False),
    ],
)
def test_unavailable_or_newer_dependency_does_not_count(error: Exception, does: bool) -> None:  # noqa: FBT001
    assert counts(error) is does


def test_retry_gives_a_full_series_and_reopens_the_same_letter() -> None:
    again = ordered(opened(), action("retry"))
    assert again is not None
    assert (again.state, again.tries, again.due_at_ms) == ("retried", 0, 999_000)
    letter, now_ms = again, again.due_at_ms
    for _ in range(TRIES):
        assert letter.state in WAITING
        letter = fail(letter, now_ms)
        now_ms = letter.due_at_ms
    assert (letter.state, letter.openings, letter.actions) == ("open", 2, again.actions)


def test_repeated_key_is_one_order_and_another_is_a_conflict() -> None:
    retried = ordered(opened(), action("retry"))
    assert retried is not None
    assert ordered(retried, action("retry")) is None
    with pytest.raises(IdempotencyConflict):
        ordered(retried, action("drop"))
    dropped = ordered(retried, action("drop", "other", "why"))
    assert dropped is not None
    assert ordered(dropped, action("drop", "other", "why")) is None
    with pytest.raises(IdempotencyConflict):
        ordered(dropped, action("drop", "other", "another note"))


@pytest.mark.parametrize("verb", ["retry", "drop"])
def test_closed_letter_takes_no_order_and_counts_no_failure(verb: Verb) -> None:
    dropped = ordered(opened(), action("drop"))
    done = handled(opened(), 5)
    assert dropped is not None
    assert done is not None
    for letter in (dropped, done):
        with pytest.raises(Refused):
            ordered(letter, action(verb, "new"))
    assert failed(dropped, ADDRESS, FAULT, 10**9, TRIES) is None
    assert handled(dropped, 5) is None
    assert handled(done, 6) is None


def test_starts_without_an_answer_open_it_and_an_answer_restarts() -> None:
    letter = started(None, ADDRESS, 0, TRIES)
    for _ in range(TRIES - 1):
        letter = started(letter, ADDRESS, 0, TRIES)
    assert (letter.state, letter.starts) == ("suspected", TRIES)
    assert answered(letter, 1).starts == 0
    crashed = started(letter, ADDRESS, 0, TRIES)
    assert (crashed.state, crashed.fault.code) == ("open", "crashed")


MOVES = st.lists(st.sampled_from(["fail", "start", "answer", "handle", "show", "retry", "drop"]), max_size=60)


@given(MOVES)
def test_letter_stays_bounded_and_a_dropped_one_stays_dropped(moves: list[str]) -> None:
    letter: DeadLetter | None = None
    now_ms = 0
    for n, move in enumerate(moves):
        now_ms += 70_000
        before = letter
        letter = _after(letter, move, n, now_ms) or letter
        if letter is None:
            continue
        assert letter.address == ADDRESS
        assert letter.tries <= max(TRIES, 1) + len(moves)
        assert len(letter.actions) <= ACTIONS_MAX
        if before is not None:
            assert letter.openings >= before.openings
            if before.state == "dropped":
                assert replace(letter, starts=0, last_at_ms=0) == replace(before, starts=0, last_at_ms=0)


def _after(letter: DeadLetter | None, move: str, n: int, now_ms: int) -> DeadLetter | None:
    match move:
        case "fail":
            return failed(letter, ADDRESS, FAULT, now_ms, TRIES)
        case "show":
            return shown(letter, ADDRESS, FAULT, now_ms)
        case "start" if letter is None or letter.state not in CLOSED:
            return started(letter, ADDRESS, now_ms, TRIES)
        case "answer" if letter is not None and letter.state not in CLOSED:
            return answered(letter, now_ms)
        case "handle" if letter is not None:
            return handled(letter, now_ms)
        case "retry" | "drop" if letter is not None and letter.state not in CLOSED:
            return ordered(letter, Action("retry" if move == "retry" else "drop", "p", now_ms, f"k{n}"))
        case _:
            return None
