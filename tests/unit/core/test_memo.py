"""A memo by identity: it never mistakes one value for another, and stays bounded."""

from __future__ import annotations

import weakref

from anchorwatch.core.memo import ByIdentity
from hypothesis import given
from hypothesis import strategies as st


def test_the_same_value_is_worked_on_once_and_an_equal_one_again() -> None:
    made: list[list[int]] = []

    def make(value: list[int]) -> int:
        made.append(value)
        return len(value)

    count = ByIdentity(make, 8)
    value, equal = [1, 2], [1, 2]
    assert (count(value), count(value), count(equal)) == (2, 2, 2)
    assert len(made) == 2


def test_a_value_that_is_gone_is_never_taken_for_a_new_one_at_its_address() -> None:
    total = ByIdentity[list[int], int](sum, 10_000)
    # Each list is let go of at once, so that its address would be free for the next.
    assert [total([number]) for number in range(5_000)] == list(range(5_000))


class Value:
    """Something that can be seen to be gone."""


@given(st.integers(1, 6), st.lists(st.integers(0, 15), max_size=80))
def test_what_came_last_is_known_however_many_came_before(size_max: int, order: list[int]) -> None:
    made: list[Value] = []
    remember = ByIdentity[Value, None](made.append, size_max)
    values = [Value() for _ in range(16)]
    newest: list[int] = []
    for number in order:
        before = len(made)
        remember(values[number])
        if number in newest[:size_max]:
            assert len(made) == before, "it was among the last ones"
        newest = [number, *(each for each in newest if each != number)]


def test_it_holds_no_more_than_twice_its_size() -> None:
    count = ByIdentity[Value, int](id, 10)
    seen = [weakref.ref(value) for value in (Value() for _ in range(1_000)) if count(value)]
    assert sum(each() is not None for each in seen) <= 20
