"""A memo by identity: it never mistakes one value for another, and stays bounded."""

from __future__ import annotations

from anchorwatch.core.memo import ByIdentity


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


def test_when_full_it_begins_anew() -> None:
    made: list[object] = []
    remember = ByIdentity[object, None](made.append, 2)
    one, two, three = object(), object(), object()
    for value in (one, two, one, three, three, one):
        remember(value)
    assert made == [one, two, three, one]
