"""What was made of a value once, for when the very same value comes again."""

from __future__ import annotations

from collections.abc import Callable
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
