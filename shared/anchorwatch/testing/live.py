"""Watches a live mesh from outside while it is killed: waits for conditions, and follows a session's journal."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from anchorwatch.bus.port import Bus, Stored
from anchorwatch.core.errors import AnchorWatchError, Unavailable
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.history import History, read_history
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import SessionSubjects

POLL_S = 0.05
T = TypeVar("T")


class DidNotHappen(AnchorWatchError):
    """A condition did not become true in time."""

    code = "did_not_happen"

    def __init__(self, what: str, within_s: float) -> None:
        super().__init__(f"did not happen within {within_s:g} s: {what}")
        self.what = what


async def until(look: Callable[[], Awaitable[T | None]], what: str, within_s: float = 60.0) -> T:
    """The first result of ``look`` that is true. While the server is away there is none.

    Raises:
        DidNotHappen: there was none in time.
    """
    deadline = time.monotonic() + within_s
    while True:
        with contextlib.suppress(Unavailable):
            found = await look()
            if found:
                return found
        if time.monotonic() > deadline:
            raise DidNotHappen(what, within_s)
        await asyncio.sleep(POLL_S)


class Follower:
    """Reads a session's journal as it grows."""

    def __init__(self, bus: Bus, ref: SessionRef) -> None:
        self._bus = bus
        self._everything = SessionSubjects(ref).everything
        self._records: list[Stored] = []
        self._history = History()

    async def history(self) -> History:
        """The history so far.

        Raises:
            Unavailable: the server is away. Damaged: a record cannot be trusted.
        """
        more = True
        while more:
            start = self._records[-1].sequence + 1 if self._records else 1
            page = await self._bus.range(journal_stream(), self._everything, start)
            self._records += page.messages
            more = page.more
        # Waiting callers ask often, and mostly nothing is new.
        if self._records and self._records[-1].sequence > self._history.last_sequence:
            self._history = read_history(self._records)
        return self._history
