"""What was made of a value once, for when the very same value comes again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import is_
from typing import Generic, TypeVar

Key = TypeVar("Key")
Made = TypeVar("Made")


class ByIdentity(Generic[Key, Made]):
    """A pure function of values that nobody changes, which remembers its results by the value's identity.

    For large values that stay as they are, such as the turns of a conversation: to compare them, or to hash
    them, would cost what it is to spare. It knows the ``size_max`` values that came last, and at most as many others.
    """

    def __init__(self, make: Callable[[Key], Made], size_max: int) -> None:
        self._make = make
        self._size_max = size_max
        self._recent: dict[int, tuple[Key, Made]] = {}
        self._older: dict[int, tuple[Key, Made]] = {}

    def __call__(self, key: Key) -> Made:
        identity = id(key)
        known = self._recent.get(identity)
        # It is held here, so its identity is nobody else's.
        if known is not None:
            return known[1]
        known = self._older.pop(identity, None) or (key, self._make(key))
        if len(self._recent) >= self._size_max:
            self._older, self._recent = self._recent, {}
        self._recent[identity] = known
        return known[1]


@dataclass(slots=True)
class _Last(Generic[Key, Made]):
    """The sequence with a certain end that was asked about last, and what was made of each of its values."""

    keys: tuple[Key, ...] = ()
    made: tuple[Made, ...] = ()


class OfEach(Generic[Key, Made]):
    """A pure function of each value of a sequence, for sequences of which most is what the one before had too.

    Such as a conversation: each turn adds its own at the end, and the oldest goes. What is new of it costs what it
    costs, and all the rest next to nothing, where to ask a memo for each would cost more the longer it is. As `ByIdentity`
    is for values that nobody changes; it knows the ``size_max`` ends of sequences that came last, and at most as many others.
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
        # They are held there, so an identity is that of the same value.
        shared = len(keys) - 1
        if 0 < shared <= len(before.keys) and all(map(is_, before.keys[-shared:], keys)):
            return (*before.made[-shared:], self._make(keys[-1]))
        known = dict(zip(map(id, before.keys), before.made, strict=True))
        return tuple(known[id(key)] if id(key) in known else self._make(key) for key in keys)
