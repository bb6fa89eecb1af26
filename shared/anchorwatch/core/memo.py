"""What was made of a value once, for when the very same value comes again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Made = TypeVar("Made")


class ByIdentity(Generic[Key, Made]):
    """A pure function of values that nobody changes, which remembers its results by the value's identity.

    For large values that stay as they are, such as the turns of a conversation: to compare them, or to hash
    them, would cost what it is to spare. It holds ``size_max`` values, and begins anew when there are more.
    """

    def __init__(self, make: Callable[[Key], Made], size_max: int) -> None:
        self._make = make
        self._size_max = size_max
        self._made: dict[int, tuple[Key, Made]] = {}

    def __call__(self, key: Key) -> Made:
        known = self._made.get(id(key))
        # It is held here, so its identity is nobody else's.
        if known is not None:
            return known[1]
        made = self._make(key)
        if len(self._made) >= self._size_max:
            self._made.clear()
        self._made[id(key)] = (key, made)
        return made
