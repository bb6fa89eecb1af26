"""What a planner does with a session: is it time, whose turn is it, what comes next.

No wake is lost, because a look reads at least up to the message in hand, looks again after the end of a turn
and after a lost fence, and a message is acked only when the look came to rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

import structlog
from anchorwatch.core.errors import Fenced, Refused
from anchorwatch.core.facts import Observation
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Acquire, TakeOver
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.wakes import Due, NotBefore
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.paces import Account
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.service.context import Clock, Identity, Peers
from anchorwatch.service.journal_guard import JournalGuard
from anchorwatch.service.worker import Done, RetryIn

from anchorwatch_planner.cache import Cache
from anchorwatch_planner.evidence import Cause, holder, takeover_reason
from anchorwatch_planner.limits import Limits
from anchorwatch_planner.reading import Reading, Supposed
from anchorwatch_planner.resolutions import Resolutions
from anchorwatch_planner.step import StepRunner
from anchorwatch_planner.switches import KillSwitches
from anchorwatch_planner.verdict import REPLACED_RETRY_S, Ended, LookAgain, Verdict, left_to_holder
from anchorwatch_planner.wakeups import WakeupTimers, timer_of_session
from anchorwatch_planner.writing import Scribe

ROUNDS_MAX = 64
SNAPSHOT_AGE = 96
"""Planner records between two snapshots, some fifty turns. A snapshot takes as much disk as seven turns: twice as many
would be a sixth more of all, and fewer a longer way to load (docs/performance.md)."""
SWEEP_PATIENCE_MS = 5_000
"""What fell due less than this ago is on its way to a planner by its own message; a sweep leaves it alone."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a looker works with."""

    sessions: SessionJournal
    committer: Committer
    cache: Cache
    timers: WakeupTimers
    thinker: StepRunner
    peers: Peers
    identity: Identity
    clock: Clock
    limits: Limits
    switches: KillSwitches
    guard: JournalGuard
    log: structlog.stdlib.BoundLogger


class Looker:
    """Looks at sessions."""

    def __init__(self, parts: Parts) -> None:
        self._sessions = parts.sessions
        self._cache = parts.cache
        self._timers = parts.timers
        self._thinker = parts.thinker
        self._peers = parts.peers
        self._identity = parts.identity
        self._clock = parts.clock
        self._limits = parts.limits
        self._switches = parts.switches
        self._guard = parts.guard
        self._log = parts.log
        self._scribe = Scribe(
            parts.sessions, parts.committer, parts.clock, parts.identity.execution_id, parts.log
        )
        self._reading = Reading(
            parts.sessions, parts.cache, parts.identity, parts.clock, parts.limits.windows
        )
        self._resolutions = Resolutions(parts.committer, parts.clock, parts.identity.execution_id)

    async def look(self, ref: SessionRef, causes: Sequence[Cause]) -> Verdict:
        """Do what is to be done now for this session, and say what becomes of the messages in hand."""
        await self._guard.check()
        at_least, me = _newest(causes), self._identity.execution_id
        for cause in causes:
            if cause.kind == "tick" and not cause.again:
                self._timers.on_fired(timer_of_session(ref), cause.rang_ms)
        view: Supposed | SessionState | None = await self._reading.supposed(ref, causes)
        view = view or self._reading.told(ref, causes) or await self._reading.read(ref, at_least, causes)
        state = view.state if isinstance(view, Supposed) else view
        causes = await self._resolutions.pass_on(ref, causes, partial(self._is_at_hand, state))
        if not causes:
            return Done()
        refused, evidence = False, causes
        for _ in range(ROUNDS_MAX):
            verdict: Verdict | LookAgain = LookAgain()
            known = None
            try:
                verdict = await self._act(ref, view, causes, evidence)
                known = self._cache.get(ref)
            except Fenced:
                if (held := self._cache.get(ref)) and held.is_held_by(me):
                    # By what this look took the turn it does not take it again: whoever has it now came later.
                    evidence = []
            except Refused:
                # A person's order came between the reading and the deciding: it is seen when the session is read again.
                if refused:
                    raise
                refused = True
            if not isinstance(verdict, LookAgain):
                return verdict
            # A turn that this process has just taken further needs no reading: whatever else was written meanwhile, by a
            # person or a planner, the fence of its next record tells. At rest, inputs count that nobody looked at.
            view = known if known and known.is_held_by(me) else await self._reading.whole(ref, at_least)
        return RetryIn(REPLACED_RETRY_S)

    async def reread(self, ref: SessionRef, at_least: int) -> None:
        """Forget what is known of the session, and read it from the journal.

        Raises:
            Damaged: it is the journal that cannot be read. Unavailable.
        """
        self._cache.drop(ref)
        await self._reading.checked(ref, at_least)

    def _is_at_hand(self, state: SessionState, call: CallId) -> bool:
        """Whether the next step that this process decides shows the call."""
        mine = state.is_held_by(self._identity.execution_id)
        return mine and state.turn is not None and state.turn.run_id == call.run

    async def _act(
        self,
        ref: SessionRef,
        view: Supposed | SessionState,
        causes: Sequence[Cause],
        evidence: Sequence[Cause],
    ) -> Verdict | LookAgain:
        if isinstance(view, Supposed):
            return await self._begin(ref, view.state, causes)
        return await self._round(ref, view, causes, evidence)

    async def _round(
        self, ref: SessionRef, state: SessionState, causes: Sequence[Cause], evidence: Sequence[Cause]
    ) -> Verdict | LookAgain:
        status = state.anchor.status if state.anchor else "none"
        if state.anchor is not None and self._switches.blocking(ref, state.anchor.agent) is not None:
            # Whatever waits is in the journal; when the switch is turned off, every session is looked at.
            return await self._hold(ref, state, "kill_switch")
        if status == "idle":
            return await self._rest(ref, state, causes, _newest(causes))
        if status == "active":
            return await self._run(ref, state, causes, evidence)
        # Paused: whatever waits is in the journal, and resuming is a wake. Quarantined and deleted: nobody runs it.
        return await self._hold(ref, state, status)

    async def _hold(self, ref: SessionRef, state: SessionState, why: str) -> Verdict | LookAgain:
        """Begin no turn; and keep no more of what waits than its limits let."""
        if over := await self._limits.overflow(ref, state):
            self._cache.put(ref, await self._scribe.refuse(ref, state, over, f"{why}: too many waited"))
        return Done()

    async def _rest(
        self, ref: SessionRef, state: SessionState, causes: Sequence[Cause], woken_by: int
    ) -> Verdict | LookAgain:
        now_ms = self._clock.now_ms()
        swept = all(cause.kind == "sweep" for cause in causes)
        everyone = any(cause.kind in ("sweep", "start") for cause in causes)
        horizon_ms = now_ms - SWEEP_PATIENCE_MS if swept else now_ms
        next_turn = await self._limits.due(ref, state, now_ms, horizon_ms)
        held = next_turn.held
        match next_turn.found:
            case Due():
                if not woken_by:
                    # A turn needs a message that comes again if its planner dies: make one, and let its delivery start it.
                    receipt = await self._scribe.tick(ref, f"tick-{state.pending[0].sequence}", now_ms)
                    if not receipt.replayed:
                        return Done()
                    woken_by = receipt.sequence
                state, seen = await self._acquire(ref, state, woken_by, now_ms, next_turn.account)
                return await self._step(ref, state, seen)
            case NotBefore(at_ms=at_ms, check=True) if at_ms <= horizon_ms or (
                everyone and not held.others_ms and await self._limits.is_too_late(ref, state, at_ms - now_ms)
            ):
                # The run too: a clock that was set back must not find the tick of a turn that is over in place of its own.
                # And the head: where a person has cleared that tick, or a limit refused it, the check is due all the same.
                runs = state.anchor.run_id if state.anchor else 0
                receipt = await self._scribe.tick(ref, f"check-{runs + 1}-{at_ms}-{state.head}", now_ms)
                return LookAgain() if woken_by or receipt.replayed else Done()
            case NotBefore(at_ms=at_ms) if at_ms > now_ms:
                await self._timers.ensure(timer_of_session(ref), at_ms)
                if held.others_ms:
                    return await self._hold(ref, state, "rate_limited")
            case _:
                pass
        return Done()

    async def _begin(
        self, ref: SessionRef, state: SessionState, causes: Sequence[Cause]
    ) -> Verdict | LookAgain:
        """Begin a turn on a state that is only supposed, which its fence proves; or else read, and decide on what there is."""
        now_ms = self._clock.now_ms()
        if state.anchor is None or self._switches.blocking(ref, state.anchor.agent) is not None:
            return LookAgain()
        next_turn = await self._limits.due(ref, state, now_ms, now_ms)
        if not isinstance(next_turn.found, Due):
            return LookAgain()
        state, seen = await self._acquire(ref, state, _newest(causes), now_ms, next_turn.account)
        return await self._step(ref, state, seen)

    async def _acquire(
        self, ref: SessionRef, state: SessionState, woken_by: int, now_ms: int, account: Account | None
    ) -> tuple[SessionState, Observation]:
        """Start the turn; and how the world is, which is asked while the server stores that."""
        agent = await self._thinker.agent(ref, state)
        run_id = state.anchor.run_id + 1 if state.anchor else 1
        command = Acquire(
            turn_id=turn_id(ref, run_id),
            agent=agent.at_version,
            execution_id=self._identity.execution_id,
            woken_by=woken_by,
            through=state.read_through,
            at_ms=now_ms,
            pace=self._limits.begun(agent, state, now_ms),
        )
        events = decide(state, command)
        seeing = asyncio.create_task(
            self._thinker.observe(ref, agent.name, state), name=f"observation of {ref}"
        )
        try:
            reached(Edge.PLANNER_ACQUIRE_BEFORE)
            also = self._limits.spend(account, ref, now_ms)
            state = await self._sessions.append(ref, state, events, now_ms, also=also)
            reached(Edge.PLANNER_ACQUIRE_AFTER)
        except BaseException:
            seeing.cancel()
            await asyncio.gather(seeing, return_exceptions=True)
            raise
        self._cache.put(ref, state)
        self._log.info(
            "turn started", session=str(ref), run=run_id, inputs=len(state.turn.inputs) if state.turn else 0
        )
        return state, await seeing

    async def _run(
        self, ref: SessionRef, state: SessionState, causes: Sequence[Cause], evidence: Sequence[Cause]
    ) -> Verdict | LookAgain:
        anchor, turn = state.anchor, state.turn
        if anchor is None or turn is None or not turn.settled:
            return Done()
        if anchor.execution_id != self._identity.execution_id:
            reason = takeover_reason(
                turn, evidence, holder_gone=await self._holder_gone(anchor.execution_id or "")
            )
            if reason is None:
                return left_to_holder(turn, causes)
            state = await self._take_over(ref, state, causes, reason)
        return await self._step(ref, state)

    async def _step(
        self, ref: SessionRef, state: SessionState, seen: Observation | None = None
    ) -> Verdict | LookAgain:
        state = await self._thinker.step(ref, state, seen)
        self._cache.put(ref, state)
        if state.turn is None:
            await self._after_turn(ref, state)
            return Ended()
        return LookAgain() if state.turn.settled else Done()

    async def _holder_gone(self, execution_id: str) -> bool:
        instance, incarnation = holder(execution_id)
        return await self._peers.alive(instance, incarnation) in ("dead", "gone")

    async def _take_over(
        self, ref: SessionRef, state: SessionState, causes: Sequence[Cause], reason: str
    ) -> SessionState:
        now_ms = self._clock.now_ms()
        command = TakeOver(self._identity.execution_id, _newest(causes), now_ms, reason)
        events = decide(state, command)
        reached(Edge.PLANNER_TAKEOVER_BEFORE)
        state = await self._sessions.append(ref, state, events, now_ms)
        reached(Edge.PLANNER_TAKEOVER_AFTER)
        self._cache.put(ref, state)
        self._log.info(
            "turn taken over", session=str(ref), run=state.anchor.run_id if state.anchor else 0, why=reason
        )
        return state

    async def _after_turn(self, ref: SessionRef, state: SessionState) -> None:
        anchor = state.anchor
        if anchor is not None:
            self._log.info(
                "turn ended", session=str(ref), run=anchor.last_run_id, outcome=anchor.last_run_outcome,
                why=anchor.last_run_reason,
            )  # fmt: skip
        if state.snapshot_age >= SNAPSHOT_AGE:
            self._cache.put(ref, await self._scribe.snapshot(ref, state))


def _newest(causes: Sequence[Cause]) -> int:
    return max((cause.sequence for cause in causes), default=0)


def turn_id(ref: SessionRef, run_id: int) -> str:
    """The public id of a session's n-th turn."""
    return f"turn_{sha256(f'{ref}/{run_id}'.encode()).hexdigest()[:24]}"
