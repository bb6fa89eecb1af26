"""Writers of one process that want to write behind the same record go one after the other.

Side by side, each would read what it decides on, all but one would lose, and read everything again: a thousand at once would keep
the connection busy with what is thrown away. Between processes the fence decides, as ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable
from dataclasses import dataclass, field

from anchorwatch.core.errors import Unavailable


@dataclass(slots=True)
class _Lane:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Lanes:
    """A lane for each written thing, which exists while it is in use."""

    def __init__(self) -> None:
        self._lanes: dict[Hashable, _Lane] = {}

    @contextlib.asynccontextmanager
    async def turn(self, what: Hashable, within_s: float) -> AsyncIterator[None]:
        """Be the only one at ``what`` for the length of a block.

        Raises:
            Unavailable: it is not one's turn within ``within_s``.
        """
        lane = self._lanes.setdefault(what, _Lane())
        lane.users += 1
        try:
            try:
                async with asyncio.timeout(within_s):
                    await lane.turn.acquire()
            except TimeoutError:
                raise Unavailable(
                    "many order the same thing at once", hint="ask again with the same key"
                ) from None
            try:
                yield
            finally:
                lane.turn.release()
        finally:
            lane.users -= 1
            if not lane.users:
                del self._lanes[what]
