"""Sessions that cannot be looked at: said once, in one dead letter for each, and looked at again and again.

What fails is the session's fault and not its messages' (its pack is missing, say), so it has one letter however many of its
messages fail. They are acked: its inputs stand in the journal, and wait there.
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

from anchorwatch_planner.evidence import Cause

SERVICE = "planner"
FAILURES_MAX = 2
"""So many looks in a row may fail before it is written down: most faults are over at the next look."""
TAKE_UP_S_MAX = 30.0
AGAIN_S = 2.0
PAGE = 256

Post = Callable[[SessionRef, Cause], None]
Rest = Callable[[Sequence[SessionRef], float], Awaitable[None]]


class Troubles:
    """What this process knows of sessions that cannot be looked at."""

    def __init__(
        self, context: ServiceContext, letters: DeadLetters, sessions: SessionJournal, windows: Windows
    ) -> None:
        self._bus: Bus = context.bus
        self._clock = context.clock
        self._execution_id = context.identity.execution_id
        self._letters = letters
        self._sessions = sessions
        self._windows = windows
        # In a process whose former selves ended again and again, each first look at a session is a suspect.
        self._suspicious = context.crashes > CRASHES_MAX
        self._failures: Counter[SessionRef] = Counter()
        self._known: set[SessionRef] = set()
        self._parked: set[SessionRef] = set()
        self._through = 0

    async def refresh(self) -> None:
        """Learn which sessions have a letter.

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
        """The sessions with a letter. Each planner looks at them now and then: one of them may hold the turn."""
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
        """Around a look. Whether it may be begun: a session whose looks end their process is left alone until it is retried.

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
        """A look failed. Whether that is written down, so that its messages may be acked."""
        if not counts(error):
            return False
        self._failures[ref] += 1
        if ref not in self._known and self._failures[ref] < FAILURES_MAX:
            return False
        written = await self._letters.failed(_address(ref, causes), error)
        if written:
            self._known.add(ref)
        return written

    async def rested(self, ref: SessionRef) -> None:
        """A look came to rest. Where its session had a letter, that is done once the session has shown that it goes on."""
        self._failures.pop(ref, None)
        if ref not in self._known:
            return
        with contextlib.suppress(AnchorWatchError):
            if await self._goes_on(ref):
                await self._close(ref)

    async def take_up(self, letter: DeadLetter, post: Post, rest: Rest) -> Result:
        """Have the session of a letter looked at. Done: it goes on."""
        ref = SessionRef(letter.address.workspace, letter.address.session)
        self._learn(letter)
        post(ref, Cause("retry"))
        await rest([ref], TAKE_UP_S_MAX)
        return Done() if await self._goes_on(ref) else RetryIn(AGAIN_S)

    async def _goes_on(self, ref: SessionRef) -> bool:
        """Whether no turn is due in it, or this process holds its turn and waits for outcomes.

        Raises:
            Unavailable. NewerSchema: a process of that release can read the session.
        """
        try:
            state = await self._sessions.load(ref, 0)
        except NewerSchema:
            raise
        except Damaged:
            # The quarantine reports the damage, and a repair ends it.
            return True
        match state.anchor.status if state.anchor else None:
            case "active":
                mine = state.is_held_by(self._execution_id)
                return mine and state.turn is not None and not state.turn.settled
            case "idle":
                # What waits for the next check may wait for hours.
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
            # Also one that was dropped: the session's next trouble is another.
            if letter is None or letter.state in ("suspected", "done"):
                return None
            return replace(letter, state="done", starts=0, last_at_ms=now_ms)

        with contextlib.suppress(Unavailable):
            await self._letters.journal.change(_address(ref, ()), change, now_ms)
            self._known.discard(ref)


def _address(ref: SessionRef, causes: Sequence[Cause]) -> Address:
    """Of the session's one letter; it names the newest of the messages in hand, where there is one."""
    stored = max(
        (cause.stored for cause in causes if cause.stored is not None),
        key=lambda each: each.sequence,
        default=None,
    )
    stream = journal_stream(ref.shard)
    if stored is None:
        where = (stream, 0, SessionSubjects(ref).anchor, 0)
    else:
        where = (stream, stored.sequence, stored.subject, stored.time_ms)
    return Address(ref.workspace, SERVICE, ref.session, "session", *where, session=ref.session)
