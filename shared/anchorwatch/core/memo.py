"""Caches by identity, for large immutable values that recur."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import is_
from typing import Generic, TypeVar

Key = TypeVar("Key")
Made = TypeVar("Made")


class ByIdentity(Generic[Key, Made]):
    """Caches a pure function of immutable values by the identity of the value.

    For large values such as the turns of a conversation, whose comparison or hash would cost as much as the function.
    It keeps the last ``size_max`` values, and at most as many older ones.
    """

    def __init__(self, make: Callable[[Key], Made], size_max: int) -> None:
        self._make = make
        self._size_max = size_max
        self._recent: dict[int, tuple[Key, Made]] = {}
        self._older: dict[int, tuple[Key, Made]] = {}

    def __call__(self, key: Key) -> Made:
        identity = id(key)
        known = self._recent.get(identity)
        # The cache holds the value, so its id is not reused.
        if known is not None:
            return known[1]
        known = self._older.pop(identity, None) or (key, self._make(key))
        if len(self._recent) >= self._size_max:
            self._older, self._recent = self._recent, {}
        self._recent[identity] = known
        return known[1]


@dataclass(slots=True)
class _Last(Generic[Key, Made]):
    """The last sequence with a given end, and the result for each of its values."""

    keys: tuple[Key, ...] = ()
    made: tuple[Made, ...] = ()


class OfEach(Generic[Key, Made]):
    """Caches a pure function of each value of a sequence that mostly repeats the previous sequence.

    For example a conversation: each turn is appended, and the oldest is dropped. Only new values are computed, and the
    repeated part costs almost nothing, however long it is. Values must be immutable, as for `ByIdentity`; it keeps the
    last ``size_max`` ends of sequences, and at most as many older ones.
    """

    def __init__(self, make: Callable[[Key], Made], size_max: int) -> None:
        self._make = make
        self._by_end: ByIdentity[Key, _Last[Key, Made]] = ByIdentity(lambda _: _Last(), size_max)

    def __call__(self, keys: tuple[Key, ...]) -> tuple[Made, ...]:
        if not keys:
            return ()
        last = self._by_end(keys[-1])
        if last.keys is not keys:
            before = last if last.keys or len(keys) == 1 else self._by_end(keys[-2])
            last.made = self._made(keys, before)
            last.keys = keys
        return last.made

    def _made(self, keys: tuple[Key, ...], before: _Last[Key, Made]) -> tuple[Made, ...]:
        # The entry holds the values, so an id belongs to the same value.
        shared = len(keys) - 1
        if 0 < shared <= len(before.keys) and all(map(is_, before.keys[-shared:], keys)):
            return (*before.made[-shared:], self._make(keys[-1]))
        known = dict(zip(map(id, before.keys), before.made, strict=True))
        return tuple(known[id(key)] if id(key) in known else self._make(key) for key in keys)
