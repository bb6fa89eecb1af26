"""Memos by identity: they never mistake one value for another, and stay bounded."""

from __future__ import annotations

import weakref

from anchorwatch.core.memo import ByIdentity, OfEach
from hypothesis import given
from hypothesis import strategies as st

from tests.support.branches import reach, reaches


def test_same_value_is_worked_on_once_and_an_equal_one_again() -> None:
    made: list[list[int]] = []

    def make(value: list[int]) -> int:
        made.append(value)
        return len(value)

    count = ByIdentity(make, 8)
    value, equal = [1, 2], [1, 2]
    assert (count(value), count(value), count(equal)) == (2, 2, 2)
    assert len(made) == 2


def test_freed_value_is_never_taken_for_a_new_one_at_its_address() -> None:
    total = ByIdentity[list[int], int](sum, 10_000)
    # Each list is let go of at once, so that its address would be free for the next.
    assert [total([number]) for number in range(5_000)] == list(range(5_000))


class Value:
    """Something that can be seen to be gone."""


@reaches("recent")
@given(st.integers(1, 6), st.lists(st.integers(0, 15), max_size=80))
def test_newest_values_are_remembered_after_any_number_of_others(size_max: int, order: list[int]) -> None:
    made: list[Value] = []
    remember = ByIdentity[Value, None](made.append, size_max)
    values = [Value() for _ in range(16)]
    newest: list[int] = []
    for number in order:
        before = len(made)
        remember(values[number])
        if number in newest[:size_max]:
            reach("recent")
            assert len(made) == before, "it was among the last ones"
        newest = [number, *(each for each in newest if each != number)]


def test_memo_holds_at_most_twice_its_size() -> None:
    count = ByIdentity[Value, int](id, 10)
    seen = [weakref.ref(value) for value in (Value() for _ in range(1_000)) if count(value)]
    assert sum(each() is not None for each in seen) <= 20


class Turn:
    """A value that is equal to others, and is worked on all the same."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Turn)

    __hash__ = None  # type: ignore[assignment]


def number_of(turn: Turn) -> tuple[int]:
    return (turn.number,)


CHANGES = st.sampled_from(["grow", "slide", "cut", "revise", "revise the last", "empty", "again", "a copy"])


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 2), CHANGES, st.integers(0, 7)), max_size=60),
)
def test_cached_results_equal_fresh_ones_for_any_sequence_change(
    size_max: int, changes: list[tuple[int, str, int]]
) -> None:
    of_each = OfEach(number_of, size_max)
    pasts: list[tuple[Turn, ...]] = [(), (), ()]
    for count, (which, change, index) in enumerate(changes):
        past, new = pasts[which], Turn(count)
        match change:
            case "grow":
                past = (*past, new)
            case "slide":
                past = (*past[1:], new)
            case "cut":
                past = past[index:]
            case "revise":
                past = (*past[:index], new, *past[index + 1 :])
            case "revise the last":
                past = (*past[:-1], new)
            case "empty":
                past = ()
            case "a copy":
                past = tuple(each for each in past)
            case _:
                pass
        pasts[which] = past
        assert of_each(past) == tuple(map(number_of, past))


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_shared_prefix_of_sequences_is_computed_once(slides: list[bool]) -> None:
    made: list[Turn] = []

    def make(turn: Turn) -> int:
        made.append(turn)
        return turn.number

    of_each = OfEach(make, 2)
    past: tuple[Turn, ...] = (Turn(0),)
    of_each(past)
    for number, slide in enumerate(slides, 1):
        past = (*past[slide:], Turn(number))
        assert of_each(past) is of_each(past)
    assert [turn.number for turn in made] == list(range(len(slides) + 1))


def test_sequence_memo_holds_at_most_twice_its_size() -> None:
    of_each = OfEach[Value, int](id, 10)
    seen = [weakref.ref(value) for value in (Value() for _ in range(1_000)) if of_each((value,))]
    assert sum(each() is not None for each in seen) <= 20
