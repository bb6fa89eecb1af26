"""Compare-and-set: one loop for every value that several processes change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from anchorwatch.core.errors import BadInput, Conflict, Fenced, NotFound, Refused, Unavailable

T = TypeVar("T")
C = TypeVar("C")

ATTEMPTS_MAX: Final = 20
REFUSALS: Final = (Refused, NotFound, Conflict, BadInput)
"""What a decision raises to change nothing."""


async def _always(_: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Register(Generic[T, C]):
    """A value ``T``, and how a change ``C`` of it is stored directly behind the value that it was decided on.

    ``load`` returns the value as it is now, with its version. ``store`` fences on that version, raises `Fenced` where another
    writer was first, and returns the value with the change.

    ``is_newest`` says whether a refusal that was decided on a value counts. A change that was decided on an old value is
    fenced, but a refusal writes nothing: where ``load`` may return an old value, this must tell.

    >>> count = 0
    >>> async def load() -> int:
    ...     return count
    >>> async def store(value: int, change: int) -> int:  # a real one is fenced on the version of ``value``
    ...     global count
    ...     count = change
    ...     return count
    >>> counter = Register("the counter", load, store)
    >>> await counter.change(lambda value: value + 1)
    1
    """

    name: str
    load: Callable[[], Awaitable[T]]
    store: Callable[[T, C], Awaitable[T]]
    is_newest: Callable[[T], Awaitable[bool]] = _always

    async def change(self, decide: Callable[[T], C | None]) -> T:
        """Store what ``decide`` makes of the value (None: nothing), and decide again where another writer was first.

        Raises:
            Unavailable: other writers were first each time. Whatever ``load``, ``store`` and ``decide`` raise.
        """
        for _ in range(ATTEMPTS_MAX):
            value = await self.load()
            try:
                change = decide(value)
            except REFUSALS:
                if await self.is_newest(value):
                    raise
                continue
            if change is None:
                return value
            try:
                return await self.store(value, change)
            except Fenced:
                continue
        raise Unavailable(f"{self.name} is being changed by other writers", hint="try again")
