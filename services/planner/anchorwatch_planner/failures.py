"""Sessions whose passes fail: each gets one dead letter, and further passes at each sweep.

The fault is the session's and not its messages' (its pack is missing, say), so there is one letter for any number of failed
messages. They are acked: the inputs wait in the journal.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace

from anchorwatch.bus.port import Bus
from anchorwatch.core.errors import AnchorWatchError, Damaged, NewerSchema, Unavailable
from anchorwatch.core.letters import CRASHED, Address, DeadLetter, counts
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session.wakes import NotBefore, Windows, due
from anchorwatch.journal.letters import read_letter
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.intake import CRASHES_MAX
from anchorwatch.service.letters import DeadLetters
from anchorwatch.service.worker import Done, Result, RetryIn
from anchorwatch.topology.streams import DEAD, journal_stream
from anchorwatch.topology.subjects import DEAD_LETTER, SessionSubjects

from anchorwatch_planner.takeover import Cause

SERVICE = "planner"
FAILURES_MAX = 2
"""How many passes in a row may fail before the dead letter is written: most faults are over at the next pass."""
RETRY_S_MAX = 30.0
AGAIN_S = 2.0
PAGE = 256

Post = Callable[[SessionRef, Cause], None]
Wait = Callable[[Sequence[SessionRef], float], Awaitable[None]]


class SessionFailures:
    """The sessions with a dead letter, as far as this process knows."""

    def __init__(
        self, context: ServiceContext, letters: DeadLetters, sessions: SessionJournal, windows: Windows
    ) -> None:
        self._bus: Bus = context.bus
        self._clock = context.clock
        self._execution_id = context.identity.execution_id
        self._letters = letters
        self._sessions = sessions
        self._windows = windows
        # If earlier incarnations of this process crashed repeatedly, any first pass over a session may be the cause.
        self._suspicious = context.crashes > CRASHES_MAX
        self._failures: Counter[SessionRef] = Counter()
        self._known: set[SessionRef] = set()
        self._parked: set[SessionRef] = set()
        self._through = 0

    async def refresh(self) -> None:
        """Read which sessions have a letter.

        Raises:
            Unavailable.
        """
        while True:
            page = await self._bus.range(DEAD, DEAD_LETTER.filter(service=SERVICE), self._through + 1, PAGE)
            for stored in page.messages:
                self._through = stored.sequence
                with contextlib.suppress(Damaged):
                    letter = read_letter(stored).letter
                    if letter is not None:
                        self._learn(letter)
            if not page.more:
                return

    def known(self) -> list[SessionRef]:
        """The sessions with a letter. Every planner retries them, since any of them may hold the turn."""
        return sorted(self._known - self._parked)

    def _learn(self, letter: DeadLetter) -> None:
        ref = SessionRef(letter.address.workspace, letter.address.session)
        self._known.discard(ref)
        self._parked.discard(ref)
        if letter.state not in ("suspected", "done"):
            self._known.add(ref)
        if letter.state in ("open", "dropped") and letter.fault.code == CRASHED:
            self._parked.add(ref)

    @contextlib.asynccontextmanager
    async def guard(self, ref: SessionRef) -> AsyncIterator[bool]:
        """Guard a pass. Yields whether it may start: a session whose passes crash their process waits until a person retries it.

        Raises:
            Unavailable.
        """
        if ref in self._parked:
            yield False
            return
        if not self._suspicious:
            yield True
            return
        async with self._letters.guard(_address(ref, ()), self._letters.tries_max + 1) as admitted:
            yield admitted

    async def failed(self, ref: SessionRef, causes: Sequence[Cause], error: Exception) -> bool:
        """A pass failed. Returns whether a dead letter holds the failure, so that the messages may be acked."""
        if not counts(error):
            return False
        self._failures[ref] += 1
        if ref not in self._known and self._failures[ref] < FAILURES_MAX:
            return False
        written = await self._letters.failed(_address(ref, causes), error)
        if written:
            self._known.add(ref)
        return written

    async def succeeded(self, ref: SessionRef) -> None:
        """A pass ended well. If its session has a letter, close it once the session makes progress."""
        self._failures.pop(ref, None)
        if ref not in self._known:
            return
        with contextlib.suppress(AnchorWatchError):
            if await self._progresses(ref):
                await self._close(ref)

    async def take_up(self, letter: DeadLetter, post: Post, wait: Wait) -> Result:
        """Retry the session of a letter. `Done`: it makes progress."""
        ref = SessionRef(letter.address.workspace, letter.address.session)
        self._learn(letter)
        post(ref, Cause("retry"))
        await wait([ref], RETRY_S_MAX)
        return Done() if await self._progresses(ref) else RetryIn(AGAIN_S)

    async def _progresses(self, ref: SessionRef) -> bool:
        """Whether no turn of it is due, or this process holds its turn and waits for outcomes.

        Raises:
            Unavailable. NewerSchema: a process of that release can read the session.
        """
        try:
            state = await self._sessions.load(ref, 0)
        except NewerSchema:
            raise
        except Damaged:
            # The quarantine reports the damage, until a repair.
            return True
        match state.anchor.status if state.anchor else None:
            case "active":
                mine = state.is_held_by(self._execution_id)
                return mine and state.turn is not None and not state.turn.settled
            case "idle":
                # Inputs that wait for the next check may wait for hours.
                now_ms = self._clock.now_ms()
                found = due(state, now_ms, self._windows)
                return isinstance(found, NotBefore) and found.at_ms > now_ms
            case "quarantined" | "deleted":
                return True
            case _:
                return not state.pending

    async def _close(self, ref: SessionRef) -> None:
        now_ms = self._clock.now_ms()

        def change(letter: DeadLetter | None) -> DeadLetter | None:
            # A dropped letter too: the session's next failure is another one.
            if letter is None or letter.state in ("suspected", "done"):
                return None
            return replace(letter, state="done", starts=0, last_at_ms=now_ms)

        with contextlib.suppress(Unavailable):
            await self._letters.journal.change(_address(ref, ()), change, now_ms)
            self._known.discard(ref)


def _address(ref: SessionRef, causes: Sequence[Cause]) -> Address:
    """The address of the session's one letter. It names the newest unanswered message, if there is one."""
    stored = max(
        (cause.stored for cause in causes if cause.stored is not None),
        key=lambda each: each.sequence,
        default=None,
    )
    stream = journal_stream()
    if stored is None:
        where = (stream, 0, SessionSubjects(ref).anchor_change, 0)
    else:
        where = (stream, stored.sequence, stored.subject, stored.time_ms)
    return Address(ref.workspace, SERVICE, ref.session, "session", *where, session=ref.session)
