"""What a look knows of its session before it decides: what this process remembers, and what it must read of the journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anchorwatch.bus.port import Stored
from anchorwatch.core.memo import OfEach
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.state import PastTurn
from anchorwatch.core.session.wakes import Due, Windows, due
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.service.context import Clock, Identity

from anchorwatch_planner.cache import Cache
from anchorwatch_planner.evidence import Cause

_OPEN = ("pending", "unknown")
KNOWN = 2_048
"""Of how many conversations it is remembered which of their turns an outcome may yet come to."""


@dataclass(frozen=True, slots=True)
class Supposed:
    """A session as it is if no planner or person has written to it since. Not proved: good only to begin a turn.

    The fence of that turn's acquire is the proof: where it holds, the state is complete.
    """

    state: SessionState


class Reading:
    """Reads sessions for one planner process."""

    def __init__(
        self, sessions: SessionJournal, cache: Cache, identity: Identity, clock: Clock, windows: Windows
    ) -> None:
        self._sessions = sessions
        self._cache = cache
        self._execution_id = identity.execution_id
        self._clock = clock
        self._windows = windows

    async def whole(self, ref: SessionRef, at_least: int) -> SessionState:
        """The session, complete up to ``at_least``.

        Raises:
            as `SessionJournal.load`.
        """
        known = self._cache.get(ref)
        # Up to the last record of ours that is known: what came before the end of a turn must be seen after it.
        state = await self._sessions.load(ref, max(at_least, known.head if known else 0), known)
        self._cache.put(ref, state)
        return state

    async def read(self, ref: SessionRef, at_least: int, causes: Sequence[Cause]) -> SessionState:
        """As `whole`, for these causes: where nothing but the clock asks for it, also as `checked`."""
        looks = any(cause.kind in ("start", "sweep") for cause in causes)
        return await (self.checked if looks else self.whole)(ref, at_least)

    async def checked(self, ref: SessionRef, at_least: int) -> SessionState:
        """As `whole`, and what is recorded of the running turn's effects can be read: nobody would be told that it cannot.

        Raises:
            as `whole`.
        """
        state = await self.whole(ref, at_least)
        if state.turn is not None:
            run, steps = state.turn.run_id, state.turn.steps
            calls = {CallId(run, step.number, call.n) for step in steps for call in step.calls}
            await self._sessions.check_effects(ref, run, calls)
        return state

    def told(self, ref: SessionRef, causes: Sequence[Cause]) -> SessionState | None:
        """The state of a turn of ours, when the messages in hand are all that it waited for; then nothing has to be read."""
        known = self._cache.get(ref)
        if (
            known is None
            or not known.is_held_by(self._execution_id)
            or any(cause.kind != "done" for cause in causes)
        ):
            return None
        state = self._sessions.fold(known, [cause.stored for cause in causes if cause.stored])
        if state.turn is None or not state.turn.settled:
            return None
        self._cache.put(ref, state)
        return state

    async def supposed(self, ref: SessionRef, causes: Sequence[Cause]) -> Supposed | None:
        """The session at rest, with all inputs up to the one in hand.

        None: no turn would begin by it, or more than inputs may have come.
        """
        known, newest = self._cache.get(ref), _newest_input(causes)
        if known is None or newest is None or newest.sequence <= known.head or not is_closed(known):
            return None
        if not self._is_due(self._sessions.fold(known, [newest])):
            return None
        return Supposed(await self._sessions.with_inputs(ref, known, newest.sequence))

    def _is_due(self, state: SessionState) -> bool:
        return isinstance(due(state, self._clock.now_ms(), self._windows), Due)


def _newest_input(causes: Sequence[Cause]) -> Stored | None:
    """The newest message in hand, where all that nobody has seen to are inputs."""
    new = [cause for cause in causes if not cause.again]
    if not new or any(cause.kind != "in" for cause in new):
        return None
    return max(new, key=lambda cause: cause.sequence).stored


def is_closed(state: SessionState) -> bool:
    """Whether the session is at rest, and no outcome can come any more: of a turn that was cancelled, or one settled by hand."""
    if state.anchor is None or state.anchor.status != "idle" or state.unsettled:
        return False
    pasts = (state.history, *(hidden.turns for hidden in state.archives))
    return not any(any(_are_open(past)) for past in pasts)


def _is_open(turn: PastTurn) -> bool:
    return any(call.state in _OPEN for step in turn.steps for call in step.calls)


# A turn that is over stays the same object, until an outcome comes to it.
_are_open = OfEach(_is_open, KNOWN)
