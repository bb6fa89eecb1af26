"""Reads and writes the sessions of one planner process: its cached states, the journal, and the records beside a turn."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog
from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode
from anchorwatch.core.effect.state import Outcome
from anchorwatch.core.errors import TooLarge
from anchorwatch.core.memo import OfEach
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import RefuseInputs
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.state import P0, P1, Input, PastTurn
from anchorwatch.core.session.wakes import Due, Windows, due
from anchorwatch.edges import Edge, around
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.effect_mapping import read_outcome
from anchorwatch.journal.inputs import Receipt, accept
from anchorwatch.journal.mapping import input_body
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.service.context import Clock
from anchorwatch.topology.subjects import RESOLVED

from anchorwatch_planner.takeover import Cause

_OPEN = ("pending", "unknown")
CONVERSATIONS_MAX = 2_048
"""For how many conversations it is cached which of their turns may still get an outcome."""


class StateCache:
    """The states of the ``size`` sessions that were used last, and of those whose turn ``execution_id`` holds.

    An old state costs a read of the session's end; a fence detects one that was too old.
    """

    def __init__(self, size: int, execution_id: str) -> None:
        self._size = size
        self._execution_id = execution_id
        self._states: OrderedDict[SessionRef, SessionState] = OrderedDict()
        self._held: dict[SessionRef, SessionState] = {}

    def get(self, ref: SessionRef) -> SessionState | None:
        if (held := self._held.get(ref)) is not None:
            return held
        state = self._states.get(ref)
        if state is not None:
            self._states.move_to_end(ref)
        return state

    def put(self, ref: SessionRef, state: SessionState) -> None:
        self.drop(ref)
        if state.is_held_by(self._execution_id):
            self._held[ref] = state
            return
        self._states[ref] = state
        if len(self._states) > self._size:
            self._states.popitem(last=False)

    def drop(self, ref: SessionRef) -> None:
        self._states.pop(ref, None)
        self._held.pop(ref, None)

    def held(self) -> list[SessionRef]:
        """The sessions whose turn this process holds, as far as it knows."""
        return sorted(self._held)


@dataclass(frozen=True, slots=True)
class Assumed:
    """A session at rest with all its inputs, if no planner or person has written to it since. It may only start a turn.

    The fence of that turn's first record proves the assumption: where it holds, the state is complete.
    """

    state: SessionState


class SessionReader:
    """Reads sessions for one planner process, from its cache as far as that is safe."""

    def __init__(
        self, sessions: SessionJournal, cache: StateCache, execution_id: str, clock: Clock, windows: Windows
    ) -> None:
        self._sessions = sessions
        self._cache = cache
        self._execution_id = execution_id
        self._clock = clock
        self._windows = windows

    async def open(self, ref: SessionRef, causes: Sequence[Cause]) -> Assumed | SessionState:
        """The session at the begin of a pass, up to the newest of its ``causes``, with as few reads as these allow.

        Raises:
            as `load`.
        """
        assumed = await self._assume(ref, causes)
        if assumed is not None:
            return assumed
        newest = max((cause.sequence for cause in causes), default=0)
        # A session without news may be damaged, and no message would reveal it.
        check_effects = any(cause.kind in ("start", "sweep") for cause in causes)
        return self._with_outcomes(ref, causes) or await self.load(ref, newest, check_effects=check_effects)

    async def load(self, ref: SessionRef, at_least: int, *, check_effects: bool = False) -> SessionState:
        """The session, complete up to ``at_least``. ``check_effects``: the running turn's effects must be readable too.

        Raises:
            as `SessionJournal.load`.
        """
        known = self._cache.get(ref)
        # At least up to this planner's last record: a read after the end of a turn must show what was written before it.
        state = await self._sessions.load(ref, max(at_least, known.head if known else 0), known)
        self._cache.put(ref, state)
        if check_effects and state.turn is not None:
            run, steps = state.turn.run_id, state.turn.steps
            calls = {CallId(run, step.number, call.n) for step in steps for call in step.calls}
            await self._sessions.check_effects(ref, run, calls)
        return state

    async def reload(self, ref: SessionRef, at_least: int) -> None:
        """Drop the cached state, and read all of the session.

        Raises:
            Damaged: the journal cannot be read, not only the cache. Unavailable.
        """
        self._cache.drop(ref)
        await self.load(ref, at_least, check_effects=True)

    def _with_outcomes(self, ref: SessionRef, causes: Sequence[Cause]) -> SessionState | None:
        """The state of a turn that this process holds, if ``causes`` are all the outcomes that it waits for."""
        known = self._cache.get(ref)
        if known is None or not known.is_held_by(self._execution_id):
            return None
        if any(cause.kind != "done" for cause in causes):
            return None
        state = self._sessions.fold(known, [cause.stored for cause in causes if cause.stored])
        if state.turn is None or not state.turn.settled:
            return None
        self._cache.put(ref, state)
        return state

    async def _assume(self, ref: SessionRef, causes: Sequence[Cause]) -> Assumed | None:
        """The cached session with all inputs up to the newest one; None: no turn starts by it, or more than inputs may come."""
        known, newest = self._cache.get(ref), _newest_input(causes)
        if known is None or newest is None or newest.sequence <= known.head or not is_closed(known):
            return None
        if not self._is_due(self._sessions.fold(known, [newest])):
            return None
        return Assumed(await self._sessions.with_inputs(ref, known, newest.sequence))

    def _is_due(self, state: SessionState) -> bool:
        return isinstance(due(state, self._clock.now_ms(), self._windows), Due)


def _newest_input(causes: Sequence[Cause]) -> Stored | None:
    """The newest message, if all that were not handled before are inputs."""
    new = [cause for cause in causes if not cause.handled]
    if not new or any(cause.kind != "in" for cause in new):
        return None
    return max(new, key=lambda cause: cause.sequence).stored


def is_closed(state: SessionState) -> bool:
    """Whether the session is at rest and no outcome can arrive: neither of a cancelled turn nor of an effect to be settled."""
    if state.anchor is None or state.anchor.status != "idle" or state.unsettled:
        return False
    pasts = (state.history, *(hidden.turns for hidden in state.archives))
    return not any(any(_are_open(past)) for past in pasts)


def _is_open(turn: PastTurn) -> bool:
    return any(call.state in _OPEN for step in turn.steps for call in step.calls)


# A past turn stays the same object until it gets an outcome.
_are_open = OfEach(_is_open, CONVERSATIONS_MAX)


@dataclass(frozen=True, slots=True)
class SessionWriter:
    """Writes the planner's records beside those of turns. ``writer`` names the process in them."""

    sessions: SessionJournal
    committer: Committer
    clock: Clock
    writer: str
    log: structlog.stdlib.BoundLogger

    async def tick(self, ref: SessionRef, input_id: str, now_ms: int) -> Receipt:
        """Write a scheduled instant as an input; the first write wins.

        Raises:
            Unavailable.
        """
        body = input_body("tick", P1, type_=input_id.partition("-")[0])
        with around(Edge.PLANNER_TICK_INPUT_BEFORE):
            return await accept(self.committer, ref, input_id, body, at_ms=now_ms, writer=self.writer)

    async def refuse(
        self, ref: SessionRef, state: SessionState, inputs: Sequence[Input], reason: str
    ) -> SessionState:
        """Refuse inputs of a session that is held, and take a snapshot, so that loading starts after them.

        Raises:
            Fenced: another process wrote to the session. Unavailable.
        """
        now_ms = self.clock.now_ms()
        events = decide(state, RefuseInputs(tuple(inputs), now_ms, self.writer, reason))
        with around(Edge.PLANNER_REFUSE_BEFORE):
            state = await self.sessions.append(ref, state, events, now_ms)
        self.log.warning("inputs.refused", session=str(ref), count=len(inputs), reason=reason)
        return await self.snapshot(ref, state)

    async def snapshot(self, ref: SessionRef, state: SessionState) -> SessionState:
        """Record the state of a session at rest, if it fits into a record.

        Raises:
            Fenced: another process wrote to the session. Unavailable.
        """
        try:
            with around(Edge.PLANNER_SNAPSHOT_BEFORE):
                return await self.sessions.snapshot(ref, state, self.clock.now_ms())
        except TooLarge as error:
            # A snapshot only makes loading faster.
            self.log.warning("snapshot.too_large", session=str(ref), reason=str(error))
        return state

    async def pass_on_resolutions(
        self, ref: SessionRef, causes: Sequence[Cause], will_show: Callable[[CallId], bool]
    ) -> list[Cause]:
        """Make an input of each outcome that a person settled and no running turn ``will_show``; returns the other causes.

        The first write wins, so other planners add no second input.

        Raises:
            Unavailable, Damaged.
        """
        rest = []
        for cause in causes:
            outcome = _resolution(cause.stored) if cause.stored and cause.kind == "done" else None
            if outcome is None or will_show(outcome.call):
                rest.append(cause)
            elif cause.stored is not None:
                await self._accept_resolution(ref, outcome, cause.stored)
        return rest

    async def _accept_resolution(self, ref: SessionRef, outcome: Outcome, stored: Stored) -> None:
        call = outcome.call
        effect = f"{outcome.tool} on {outcome.resource}" if outcome.resource else outcome.tool
        text = f"the outcome of {ref.session}/{call} ({effect}) was unknown, and is settled: {outcome.text}"
        digest = decode(stored.payload).digest
        body = input_body("resolution", P0, text=text, by=outcome.by, body_sha256=digest)
        id_ = f"resolved-{call.run}-{call.step}-{call.n}"
        with around(Edge.PLANNER_RESOLUTION_BEFORE):
            now_ms = self.clock.now_ms()
            await accept(self.committer, ref, id_, body, at_ms=now_ms, writer=self.writer)


def _resolution(stored: Stored) -> Outcome | None:
    if not stored.subject.endswith(f".{RESOLVED}"):
        return None
    return read_outcome(decode(stored.payload).body)
