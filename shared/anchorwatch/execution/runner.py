"""One command, from policy over claim and fence to its one outcome.

The order is the promise: the policy judges; the claim is written, fenced on the command's own records; *then* the anchor is
read, up to the claim's own sequence; then the tool runs; then its outcome is recorded; and only then is the delivery acked.
Whoever raises the fence either finds no claim, and this runner will see the fence, or finds one, and says that it may have run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from anchorwatch.bus.port import Bus
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.effect import EffectState, next_action
from anchorwatch.core.effect.blocking import RULE, Blocked, Clear, Waits
from anchorwatch.core.effect.decide import (
    Action,
    ClaimAgain,
    Go,
    Hold,
    Judge,
    MarkUnknown,
    Nothing,
    Stale,
    Wait,
)
from anchorwatch.core.effect.state import Claimed, Owner, Released
from anchorwatch.core.errors import Fenced, NotFound, Unavailable
from anchorwatch.core.facts import Observation
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.policy import Verdict
from anchorwatch.core.tools import EffectClass, ToolSpec
from anchorwatch.execution.admission import admit, allows, look_again
from anchorwatch.execution.attempts import Attempts
from anchorwatch.execution.job import Equipment, Job, context_of, effect_key, outcome, tool_of
from anchorwatch.execution.leave import Leave
from anchorwatch.execution.recorder import Recorder
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.packs.port import Pack, PackRuntime
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import Clock, Peers
from anchorwatch.service.observations import ask
from anchorwatch.service.worker import Done, Result, RetryIn

LOST_RACES_MAX = 5
AGENT_TRIES_MAX = 20
AGAIN_S = 0.5
EARLIER_S = 0.1
WAIT_S = 1.0
HOLD_S = 2.0
HOLD_S_MAX = 60.0
OVER = "its first executor died, and its run is over; it may have happened"

RuntimeFor = Callable[[str, AgentSpec], Awaitable[PackRuntime]]
"""(workspace, agent) -> the connection to the real system."""


@dataclass(slots=True)
class Runner:
    """Runs commands of one pool; several at a time, but each command only once at a time (its caller sees to that)."""

    bus: Bus
    sessions: SessionJournal
    leave: Leave
    recorder: Recorder
    agents: AgentDirectory
    load_pack: Callable[[str], Pack]
    runtime_for: RuntimeFor
    peers: Peers
    clock: Clock
    me: Owner
    heartbeat_s: float
    log: structlog.stdlib.BoundLogger
    _begun: set[tuple[SessionRef, CallId]] = field(default_factory=set)

    async def handle(self, job: Job) -> Result:
        """Bring the command as far as can be done now. Done: it has its outcome, or waits for a person.

        Raises:
            Unavailable, and whatever a pack raises in ``connect``: nothing was begun; try again.
        """
        state = EffectState() if job.attempt == 1 else await self._load(job)
        for _ in range(LOST_RACES_MAX):
            try:
                return await self._advance(job, state)
            except Fenced:
                state = await self._load(job)  # another executor, or a person, was first
        return RetryIn(AGAIN_S)

    async def _advance(self, job: Job, state: EffectState) -> Result:
        if state.outcome is not None:
            return Done()  # before all else: a lost ack brings it back to the very process that ran it
        match await self.leave.before(job, state):
            case Waits() as waits:
                return self._wait(job, waits)
            case Blocked() as blocked:
                await self._refuse(job, state, Verdict("refused", RULE, blocked.say(job.command.resource)))
                return Done()
            case Clear():
                return await self._equipped(job, state)

    def _wait(self, job: Job, waits: Waits) -> Result:
        self.log.debug("a command waits", call=str(job), reason=f"{waits.on} has no outcome yet")
        return RetryIn(min(EARLIER_S * 2.0 ** min(job.attempt - 1, 10), HOLD_S))

    async def _equipped(self, job: Job, state: EffectState) -> Result:
        try:
            agent = await self.agents.get(job.ref.workspace, job.command.agent)
        except NotFound as error:
            return await self._without_agent(job, state, error)
        pack = self.load_pack(agent.pack)
        tool = tool_of(pack, agent, job)
        if tool is None:
            return await self._without_tool(job, state, agent, pack)
        equipment = Equipment(agent, pack, tool, await self.runtime_for(job.ref.workspace, agent))
        if state.claim is not None and state.claim.owner == self.me and job.identity not in self._begun:
            # A claim of this process whose answer was lost, so that nothing was begun under it; or what was read is old, and
            # it was given back since, or done. Only the fence can tell: it is given back, and claimed anew.
            state = await self.recorder.append(job, state, Released(self.me, "its answer was lost"))
        return await self._act(job, equipment, state)

    async def _act(self, job: Job, equipment: Equipment, state: EffectState) -> Result:
        match await self._next(state, equipment.tool.effect_class):
            case Nothing():
                return Done()
            case Wait(reason):
                self.log.debug("a command waits", call=str(job), reason=reason)
                return RetryIn(WAIT_S)
            case MarkUnknown(reason):
                await self.recorder.not_settled(job, equipment.pack.name, state, reason)
                return Done()
            case ClaimAgain() if await self._on_hold(job, state):
                return RetryIn(HOLD_S)
            case ClaimAgain(judged=False) if not allows(await self._judge(job, equipment, state), state):
                await self.recorder.not_settled(job, equipment.pack.name, state, "")
                return Done()
            case ClaimAgain(doubt=doubt):
                claimed = await self._claim(job, state, doubt=doubt)
                return await self._under_claim(job, equipment, claimed)
            case Judge(claim):
                return await self._judged(job, equipment, state, claim=claim)

    async def _on_hold(self, job: Job, state: EffectState) -> bool:
        """Whether the session waits: then the journal need not fill with claims that are given back."""
        return isinstance(await self.leave.fence(job, state, job.sequence), Hold)

    async def _load(self, job: Job) -> EffectState:
        return await self.recorder.effects.load(job.ref, job.pool, job.call, job.sequence, job.reach)

    async def _next(self, state: EffectState, effect_class: EffectClass) -> Action:
        if state.claim is None:
            return next_action(state, effect_class, self.me, "unknown")
        owner = state.claim.owner
        if owner == self.me:
            # It began here and ended without an outcome, which only a fault can do: as if this process had died then.
            return next_action(state, effect_class, Owner(self.me.instance, ""), "dead")
        liveness = await self.peers.alive(owner.instance, owner.incarnation)
        return next_action(state, effect_class, self.me, liveness)

    # --- before the claim

    async def _without_agent(self, job: Job, state: EffectState, error: NotFound) -> Result:
        """A definition that is not there may only not have been seen yet; after a while it is not there."""
        if job.attempt < AGENT_TRIES_MAX:
            return RetryIn(AGAIN_S)
        if state.claim is not None or state.first_claim:
            # Somebody began it who knew the agent.
            raise error
        await self.recorder.append(job, state, outcome(job, "refused", error.message, rule="unknown_agent"))
        return Done()

    async def _without_tool(self, job: Job, state: EffectState, agent: AgentSpec, pack: Pack) -> Result:
        """Nothing can be run or asked: refused where nobody had begun it, else as an irreversible one."""
        match await self._next(state, EffectClass.IRREVERSIBLE):
            case Judge():
                await self._refuse(job, state, await self._admit(job, agent, pack, None))
            case MarkUnknown(reason):
                await self.recorder.not_settled(job, pack.name, state, reason)
            case Wait():
                return RetryIn(WAIT_S)
            case _:
                pass
        return Done()

    async def _judged(self, job: Job, equipment: Equipment, state: EffectState, *, claim: bool) -> Result:
        if state.gate is not None and state.approval is None:
            return Done()
        if claim and job.attempt > 1 and await self._on_hold(job, state):
            return RetryIn(HOLD_S)
        verdict = await self._judge(job, equipment, state)
        if not allows(verdict, state):
            # Nobody can be asked in this release: what asks for a person is not done.
            await self._refuse(job, state, verdict)
            return Done()
        if claim:
            return await self._first_claim(job, equipment, state)
        return await self._read(job, equipment, state)

    async def _read(self, job: Job, equipment: Equipment, state: EffectState) -> Result:
        """A read needs no claim: whoever else runs it does no harm. The fence holds for it all the same."""
        match await self.leave.fence(job, state, job.sequence):
            case Go():
                return await self._run(job, equipment, state)
            case Stale():
                await self._refuse(job, state, Verdict("refused", "fence", f"run {job.call.run} is over"))
            case Hold():
                return RetryIn(HOLD_S)
        return Done()

    async def _refuse(self, job: Job, state: EffectState, verdict: Verdict) -> None:
        self.log.info("refused", call=str(job), tool=job.command.tool, rule=verdict.rule)
        done = outcome(job, "refused", verdict.reason, rule=verdict.rule, claim=state.claim)
        await self.recorder.append(job, state, done)

    async def _judge(self, job: Job, equipment: Equipment, state: EffectState) -> Verdict:
        """What the policy says now; the word of a person who said no stands above it."""
        verdict = await self._admit(job, equipment.agent, equipment.pack, equipment.tool)
        if state.approval is not None and not state.approval.approved and state.gate is not None:
            return Verdict("refused", state.gate.rule, f"{state.approval.by} said no")
        return verdict

    async def _admit(self, job: Job, agent: AgentSpec, pack: Pack, tool: ToolSpec | None) -> Verdict:
        async def anchor() -> Anchor:
            return (await self.sessions.read_anchor(job.ref, job.sequence))[0]

        async def look() -> Observation | None:
            return await look_again(
                lambda timeout_s: ask(self.bus, job.ref.workspace, agent.name, timeout_s), self.clock
            )

        return await admit(
            job.command,
            tool,
            agent.grants,
            pack.invariants(agent),
            anchor=anchor,
            look=look,
            now_ms=self.clock.now_ms(),
        )

    # --- under a claim

    async def _first_claim(self, job: Job, equipment: Equipment, state: EffectState) -> Result:
        """Claim a command that was never begun, once no other session is at work on its resource."""
        match await self.leave.resource(job, equipment.pack.name, state):
            case Waits() as waits:
                return self._wait(job, waits)
            case Clear():
                return await self._under_claim(job, equipment, await self._claim(job, state))

    async def _claim(self, job: Job, state: EffectState, *, doubt: bool = False) -> EffectState:
        key = state.claim.effect_key if state.claim else effect_key(job)
        return await self.recorder.append(job, state, Claimed(self.me, state.attempts + 1, key, doubt))

    async def _under_claim(self, job: Job, equipment: Equipment, state: EffectState) -> Result:
        """The claim stands; the fence decides."""
        match await self.leave.under_claim(job, equipment.pack.name, state):
            case Go():
                return await self._run(job, equipment, state)
            case Blocked() as blocked:
                await self._refuse(job, state, Verdict("refused", RULE, blocked.say(job.command.resource)))
            case Stale(first=True):
                await self._refuse(job, state, Verdict("refused", "fence", f"run {job.call.run} is over"))
            case Stale() if equipment.tool.effect_class is EffectClass.RECONCILABLE:
                return await self._run(job, equipment, state)
            case Stale():
                await self.recorder.not_settled(job, equipment.pack.name, state, OVER)
            case Hold(reason):
                await self.recorder.append(job, state, Released(self.me, reason))
                return RetryIn(HOLD_S)
        return Done()

    async def _run(self, job: Job, equipment: Equipment, state: EffectState) -> Result:
        """Run it and record what came of it."""
        tool, claim = equipment.tool, state.claim
        context = context_of(job, equipment, state, now_ms=self.clock.now_ms(), heartbeat_s=self.heartbeat_s)
        attempts = Attempts(job, equipment, context, self.clock, lambda: self._may_go_on(job, state))
        again = claim is not None and claim.sequence != state.first_claim
        self._begun.add(job.identity)
        if again and tool.effect_class is EffectClass.RECONCILABLE:
            ran = await attempts.take_up(doubt=state.doubt)
        else:
            ran = await attempts.run(doubt=again)
        stands = await self.recorder.ran(job, equipment.pack.name, state, ran, durable=not tool.ephemeral)
        self._begun.discard(job.identity)
        self.log.info("ran", call=str(job), tool=tool.name, state=ran.state)
        # Without an outcome somebody else has claimed it, and may die: then the message must come again.
        return Done() if stands else RetryIn(WAIT_S)

    async def _may_go_on(self, job: Job, state: EffectState) -> bool:
        """Whether the tool may be started once more; a paused session is waited for, for a while."""
        if state.claim is None:
            return True
        deadline_s = self.clock.elapsed_s() + HOLD_S_MAX
        while self.clock.elapsed_s() < deadline_s:
            try:
                fence = await self.leave.fence(job, state, state.claim.sequence)
            except Unavailable:
                fence = Hold("the journal is away")
            if not isinstance(fence, Hold):
                return isinstance(fence, Go)
            await self.clock.sleep(HOLD_S)
        return False
