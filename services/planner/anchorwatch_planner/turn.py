"""What a planner does with one session: is a turn due, which planner runs it, what is its next step.

A *pass* handles all causes that have arrived for a session: journal messages, ticks, sweeps. It reads the session at least up to
its newest message and acts until nothing more can be done now. So no wake-up is lost:

- a pass reads up to its messages, and again after the end of a turn and after a lost fence;
- a message is acked only when its pass is over, and the messages of a turn only after a pass has read past the end of the turn.

A turn may start on cached state that is only assumed to be current (ADR 12): the fence of its first record is the proof.
A session whose journal is damaged is quarantined.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

import structlog
from anchorwatch.bus.port import Bus
from anchorwatch.core.errors import Damaged, Fenced, NewerSchema, Refused
from anchorwatch.core.facts import Observation
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Acquire, TakeOver
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.wakes import Due, NotBefore
from anchorwatch.edges import Edge, around
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.paces import Account
from anchorwatch.journal.quarantine import quarantine
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.service.context import Clock, Identity, Peers
from anchorwatch.service.journal_guard import JournalGuard
from anchorwatch.service.worker import Done, Result, RetryIn

from anchorwatch_planner.limits import Limits
from anchorwatch_planner.sessions import Assumed, SessionReader, SessionWriter, StateCache
from anchorwatch_planner.step import StepRunner
from anchorwatch_planner.switches import KillSwitches
from anchorwatch_planner.takeover import (
    REPLACED_RETRY_S,
    Cause,
    LeftToHolder,
    holder,
    left_to_holder,
    takeover_reason,
)
from anchorwatch_planner.wakeups import WakeupTimers, timer_of_session

ROUNDS_MAX = 64
AFTER_QUARANTINE_S = 0.1
SNAPSHOT_AGE = 96
"""Planner records between two snapshots, some fifty turns. A snapshot takes as much disk as seven turns: twice as many
would take a sixth more disk in all, and fewer would lengthen loading (docs/performance.md)."""
SWEEP_PATIENCE_MS = 5_000
"""A wake-up that was due less than this ago is on its way to a planner as a message; a sweep leaves it alone."""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn has ended. Its messages stay unanswered until a pass has read past the end.

    An input that arrived meanwhile may have been acked by another planner, which saw the turn run.
    """


@dataclass(frozen=True, slots=True)
class Continue:
    """The pass is not over: it continues with the state of the session as it is now."""


PassResult = Result | LeftToHolder | TurnEnded
"""`Done`: all that the causes call for is recorded."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a `TurnPlanner` works with."""

    bus: Bus
    sessions: SessionJournal
    committer: Committer
    cache: StateCache
    timers: WakeupTimers
    steps: StepRunner
    peers: Peers
    identity: Identity
    clock: Clock
    limits: Limits
    switches: KillSwitches
    guard: JournalGuard
    log: structlog.stdlib.BoundLogger


class TurnPlanner:
    """Plans the turns of sessions, one pass at a time for each session."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._me = parts.identity.execution_id
        self._sessions = parts.sessions
        self._cache = parts.cache
        self._timers = parts.timers
        self._steps = parts.steps
        self._clock = parts.clock
        self._limits = parts.limits
        self._switches = parts.switches
        self._log = parts.log
        self._writer = SessionWriter(parts.sessions, parts.committer, parts.clock, self._me, parts.log)
        self._reader = SessionReader(parts.sessions, parts.cache, self._me, parts.clock, parts.limits.windows)

    async def plan(self, ref: SessionRef, causes: Sequence[Cause]) -> PassResult:
        """Make one pass; the result answers the messages of ``causes``. A damaged session is quarantined.

        Raises:
            NewerSchema: a planner of that release must do it. Damaged: nothing can be written to this session. Unavailable.
        """
        await self._parts.guard.check()
        try:
            return await self._plan(ref, causes)
        except NewerSchema:
            raise
        except Damaged:
            return await self._quarantine(ref, causes)

    async def _plan(self, ref: SessionRef, causes: Sequence[Cause]) -> PassResult:
        for cause in causes:
            if cause.kind == "tick" and not cause.handled:
                self._timers.on_fired(timer_of_session(ref), cause.fired_ms)
        view = await self._reader.open(ref, causes)
        state, at_least = view.state if isinstance(view, Assumed) else view, _newest(causes)
        causes = await self._writer.pass_on_resolutions(ref, causes, partial(self._will_show, state))
        if not causes:
            return Done()
        refused, evidence = False, causes
        for _ in range(ROUNDS_MAX):
            result: PassResult | Continue = Continue()
            known = None
            try:
                result = await self._act(ref, view, causes, evidence)
                known = self._cache.get(ref)
            except Fenced:
                if (held := self._cache.get(ref)) and held.is_held_by(self._me):
                    # The evidence that took this turn over does not do so twice: the present holder came later.
                    evidence = []
            except Refused:
                # A person's order was written after the read: the next read shows it.
                if refused:
                    raise
                refused = True
            if not isinstance(result, Continue):
                return result
            # A turn that this process has just advanced needs no read: the fence of its next record detects every other write.
            # At rest it does, since inputs may have arrived that no planner has seen.
            view = known if known and known.is_held_by(self._me) else await self._reader.load(ref, at_least)
        return RetryIn(REPLACED_RETRY_S)

    def _will_show(self, state: SessionState, call: CallId) -> bool:
        """Whether the next step that this process decides shows the call."""
        mine = state.is_held_by(self._me)
        return mine and state.turn is not None and state.turn.run_id == call.run

    async def _act(
        self,
        ref: SessionRef,
        view: Assumed | SessionState,
        causes: Sequence[Cause],
        evidence: Sequence[Cause],
    ) -> PassResult | Continue:
        if isinstance(view, Assumed):
            return await self._start(ref, view.state, causes)
        anchor = view.anchor
        if anchor is not None and self._switches.blocking(ref, anchor.agent) is not None:
            # The inputs wait in the journal. When the switch is turned off, every session gets a pass.
            return await self._hold(ref, view, "kill_switch")
        match anchor.status if anchor else "none":
            case "idle":
                return await self._idle(ref, view, causes)
            case "active":
                return await self._active(ref, view, causes, evidence)
            case status:
                # Paused: the inputs wait in the journal, and resuming is a wake-up. Quarantined and deleted sessions do not run.
                return await self._hold(ref, view, status)

    async def _hold(self, ref: SessionRef, state: SessionState, reason: str) -> PassResult:
        """Start no turn, and refuse the inputs that exceed the session's limit."""
        if over := await self._limits.overflow(ref, state):
            self._cache.put(ref, await self._writer.refuse(ref, state, over, f"{reason}: too many waited"))
        return Done()

    async def _idle(
        self, ref: SessionRef, state: SessionState, causes: Sequence[Cause]
    ) -> PassResult | Continue:
        now_ms, trigger = self._clock.now_ms(), _newest(causes)
        swept = all(cause.kind == "sweep" for cause in causes)
        all_sessions = any(cause.kind in ("sweep", "start") for cause in causes)
        horizon_ms = now_ms - SWEEP_PATIENCE_MS if swept else now_ms
        next_turn = await self._limits.due(ref, state, now_ms, horizon_ms)
        held = next_turn.held
        match next_turn.found:
            case Due():
                if not trigger:
                    # A turn needs a message that is delivered again if its planner dies: write one, whose delivery starts it.
                    receipt = await self._writer.tick(ref, f"tick-{state.pending[0].sequence}", now_ms)
                    if not receipt.replayed:
                        return Done()
                    trigger = receipt.sequence
                state, seen = await self._acquire(ref, state, trigger, now_ms, next_turn.account)
                return await self._step(ref, state, seen)
            case NotBefore(at_ms=at_ms, check=True) if at_ms <= horizon_ms or (
                all_sessions
                and not held.others_ms
                and await self._limits.is_too_late(ref, state, at_ms - now_ms)
            ):
                # The key names the run: with a clock set back, the tick of an earlier turn must not count as this one. It names
                # the head: if a person cleared that tick, or a limit refused it, the check is due all the same.
                runs = state.anchor.run_id if state.anchor else 0
                receipt = await self._writer.tick(ref, f"check-{runs + 1}-{at_ms}-{state.head}", now_ms)
                return Continue() if trigger or receipt.replayed else Done()
            case NotBefore(at_ms=at_ms) if at_ms > now_ms:
                await self._timers.ensure(timer_of_session(ref), at_ms)
                if held.others_ms:
                    return await self._hold(ref, state, "rate_limited")
            case _:
                pass
        return Done()

    async def _start(
        self, ref: SessionRef, state: SessionState, causes: Sequence[Cause]
    ) -> PassResult | Continue:
        """Start a turn on assumed state, or continue the pass with what the journal says."""
        now_ms = self._clock.now_ms()
        if state.anchor is None or self._switches.blocking(ref, state.anchor.agent) is not None:
            return Continue()
        next_turn = await self._limits.due(ref, state, now_ms, now_ms)
        if not isinstance(next_turn.found, Due):
            return Continue()
        state, seen = await self._acquire(ref, state, _newest(causes), now_ms, next_turn.account)
        return await self._step(ref, state, seen)

    async def _acquire(
        self, ref: SessionRef, state: SessionState, woken_by: int, now_ms: int, account: Account | None
    ) -> tuple[SessionState, Observation]:
        """Start the turn, and observe while the server stores its first record."""
        agent = await self._steps.agent(ref, state)
        run_id = state.anchor.run_id + 1 if state.anchor else 1
        command = Acquire(
            turn_id=turn_id(ref, run_id),
            agent=agent.at_version,
            execution_id=self._me,
            woken_by=woken_by,
            through=state.read_through,
            at_ms=now_ms,
            pace=self._limits.begun(agent, state, now_ms),
        )
        events = decide(state, command)
        observing = asyncio.create_task(
            self._steps.observe(ref, agent.name, state), name=f"observation of {ref}"
        )
        try:
            with around(Edge.PLANNER_ACQUIRE_BEFORE):
                also = self._limits.spend(account, ref, now_ms)
                state = await self._sessions.append(ref, state, events, now_ms, also=also)
        except BaseException:
            observing.cancel()
            await asyncio.gather(observing, return_exceptions=True)
            raise
        self._cache.put(ref, state)
        inputs = len(state.turn.inputs) if state.turn else 0
        self._log.info("turn.started", session=str(ref), run=run_id, inputs=inputs)
        return state, await observing

    async def _active(
        self, ref: SessionRef, state: SessionState, causes: Sequence[Cause], evidence: Sequence[Cause]
    ) -> PassResult | Continue:
        anchor, turn = state.anchor, state.turn
        if anchor is None or turn is None or not turn.settled:
            return Done()
        if anchor.execution_id != self._me:
            holder_gone = await self._is_gone(anchor.execution_id or "")
            reason = takeover_reason(turn, evidence, holder_gone=holder_gone)
            if reason is None:
                return left_to_holder(turn, causes)
            state = await self._take_over(ref, state, causes, reason)
        return await self._step(ref, state)

    async def _step(
        self, ref: SessionRef, state: SessionState, seen: Observation | None = None
    ) -> PassResult | Continue:
        state = await self._steps.step(ref, state, seen)
        self._cache.put(ref, state)
        if state.turn is None:
            await self._after_turn(ref, state)
            return TurnEnded()
        return Continue() if state.turn.settled else Done()

    async def _is_gone(self, execution_id: str) -> bool:
        instance, incarnation = holder(execution_id)
        return await self._parts.peers.alive(instance, incarnation) in ("dead", "gone")

    async def _take_over(
        self, ref: SessionRef, state: SessionState, causes: Sequence[Cause], reason: str
    ) -> SessionState:
        now_ms = self._clock.now_ms()
        events = decide(state, TakeOver(self._me, _newest(causes), now_ms, reason))
        with around(Edge.PLANNER_TAKEOVER_BEFORE):
            state = await self._sessions.append(ref, state, events, now_ms)
        self._cache.put(ref, state)
        run = state.anchor.run_id if state.anchor else 0
        self._log.info("turn.taken_over", session=str(ref), run=run, reason=reason)
        return state

    async def _after_turn(self, ref: SessionRef, state: SessionState) -> None:
        anchor = state.anchor
        if anchor is not None:
            self._log.info(
                "turn.ended", session=str(ref), run=anchor.last_run_id, outcome=anchor.last_run_outcome,
                reason=anchor.last_run_reason,
            )  # fmt: skip
        if state.snapshot_age >= SNAPSHOT_AGE:
            self._cache.put(ref, await self._writer.snapshot(ref, state))

    async def _quarantine(self, ref: SessionRef, causes: Sequence[Cause]) -> PassResult:
        newest, reason = _newest(causes), ""

        async def read(at_least: int) -> None:
            nonlocal reason
            try:
                await self._reader.reload(ref, max(newest, at_least))
            except Damaged as damage:
                reason = str(damage)
                raise

        parts, now_ms = self._parts, self._clock.now_ms()
        done = await quarantine(parts.bus, parts.committer, ref, read, at_ms=now_ms, writer=self._me)
        if done == "written":
            self._log.error("session.quarantined", session=str(ref), reason=reason)
        # Whole: only this process's cache was wrong, or the session has been repaired.
        return RetryIn(AFTER_QUARANTINE_S) if done == "whole" else Done()


def _newest(causes: Sequence[Cause]) -> int:
    return max((cause.sequence for cause in causes), default=0)


def turn_id(ref: SessionRef, run_id: int) -> str:
    """The public id of a session's n-th turn."""
    return f"turn_{sha256(f'{ref}/{run_id}'.encode()).hexdigest()[:24]}"
