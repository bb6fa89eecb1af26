"""Runs one command, from its delivery to its one outcome: judge → claim → fence → run → record.

A command is a record of the journal. Its executor can die at any moment, and the run that decided the command can be fenced
off at any moment. Five steps, in this order, let each effect happen at most once and leave no command without an outcome:

1. `judge` decides whether the command may run: earlier commands of its session, the policy, a person's approval, and what its
   own records say. Nothing has been written yet, so a command that may not run is refused with certainty.
2. `claim` enters the command in the register of its resource, so that one command at a time works on it, and then writes a
   claim. Both writes are a compare-and-swap: of several executors one wins, and the others raise `Fenced` and read again. A
   read needs neither, since running it twice does no harm.
   The session's constraints with a rule (`constrain`) are judged here, and again in step 3 on what is true then.
3. `fence` reads the session's anchor *up to the claim's own sequence*. Whatever raises the fence therefore either finds no
   claim, and this step sees the fence, or finds the claim, and reports that the command may have run. The same answer holds the
   kill switches and the register of the resource.
4. `run` runs the tool once, or as often as its effect class allows.
5. `record` writes the outcome. It gives up only where another executor has the command. The delivery is acked after that.

Each step takes what the step before returns, so the type checker holds the order: only `fence` returns the `Cleared` that
`run` accepts. A step that ends the work returns `Stop`: the command has its outcome or waits for a person (`Done`), or it is
delivered again (`RetryIn`).

A redelivered command goes through the same steps with the state that its records give: `judge` finds an outcome, or the claim of
an owner that is alive, or one whose owner is dead. Only of a dead owner's claim does `core.effect.decide` allow another claim,
and only where the effect class allows it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

import structlog

from anchorwatch import cel
from anchorwatch.bus.port import Bus, Stored
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.effect import EffectState, blocking, next_action
from anchorwatch.core.effect.blocking import Blocked, Clear, Waits
from anchorwatch.core.effect.decide import (
    Action,
    ClaimAgain,
    Deferred,
    FencedOff,
    Judge,
    MarkUnknown,
    Nothing,
    Proceed,
    Wait,
    after_claim,
)
from anchorwatch.core.effect.state import Owner
from anchorwatch.core.errors import Damaged, Fenced, NotFound, Unavailable
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.policy import Question, Verdict, constrained
from anchorwatch.core.times import backoff_s
from anchorwatch.core.tools import EffectClass
from anchorwatch.edges import Edge, around
from anchorwatch.executor.admission import admit, observe
from anchorwatch.executor.attempts import Attempts, Ran
from anchorwatch.executor.job import (
    Equipment,
    Job,
    context_of,
    entry_of,
    outcome,
    resource_of,
    tool_of,
)
from anchorwatch.executor.recorder import Recorder
from anchorwatch.journal.blocks import BlockJournal, Entry, read_block
from anchorwatch.journal.effects import EffectJournal
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.journal.switches import first_on, subjects_of
from anchorwatch.packs.port import Pack, PackRuntime
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import Clock, Peers
from anchorwatch.service.observations import ask
from anchorwatch.service.worker import Done, Result, RetryIn

LOST_RACES_MAX = 5
AGENT_TRIES_MAX = 20
"""How often an agent that is not found is looked up: its definition may not have arrived yet."""
AGAIN_S = 0.5
EARLIER_S = 0.1
"""The first wait for an earlier command of the session; each is twice the one before, up to `HOLD_S`."""
WAIT_S = 1.0
HOLD_S = 2.0
HOLD_S_MAX = 60.0
"""How long a command that is at work waits for a paused session."""
OVER = "its first executor died, and its run is over; it may have happened"

RuntimeFor = Callable[[str, AgentSpec], Awaitable[PackRuntime]]
"""(workspace, agent) -> the connection to the real system."""

Fence = Proceed | FencedOff | Deferred


@dataclass(frozen=True, slots=True)
class Executor:
    """What the steps work with: the ``ctx`` of each.

    ``begun`` holds the commands that this process has begun: a claim of this process on any other command is one whose answer
    was lost.
    """

    bus: Bus
    sessions: SessionJournal
    effects: EffectJournal
    blocks: BlockJournal
    recorder: Recorder
    agents: AgentDirectory
    load_pack: Callable[[str], Pack]
    runtime_for: RuntimeFor
    peers: Peers
    clock: Clock
    me: Owner
    heartbeat_s: float
    random: Random
    log: structlog.stdlib.BoundLogger
    begun: set[tuple[SessionRef, CallId]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Judged:
    """The command may run, by the policy. ``effect``: what its records say, with the claim once there is one.

    ``claims``: it needs a claim. ``doubt``: an earlier owner was not proved dead.
    """

    job: Job
    effect: EffectState
    equipment: Equipment
    claims: bool
    doubt: bool = False


@dataclass(frozen=True, slots=True)
class Claimed(Judged):
    """It is claimed by this process, or needs no claim."""


@dataclass(frozen=True, slots=True)
class Cleared(Claimed):
    """It may run, by its session."""


@dataclass(frozen=True, slots=True)
class Executed:
    """It ran."""

    command: Cleared
    ran: Ran


Stop = Result


async def handle(ctx: Executor, job: Job) -> Result:
    """Advance a command as far as is possible now. One command is handled only once at a time: the caller ensures it.

    Raises:
        Unavailable, and whatever a pack raises in ``connect``: nothing was begun; try again.
    """
    effect = EffectState() if job.attempt == 1 else await _load(ctx, job)
    for _ in range(LOST_RACES_MAX):
        try:
            return await _advance(ctx, job, effect)
        except Fenced:
            effect = await _load(ctx, job)  # another executor, or a person, wrote first
    return RetryIn(AGAIN_S)


async def _advance(ctx: Executor, job: Job, effect: EffectState) -> Stop:
    judged = await judge(ctx, job, effect)
    if isinstance(judged, Stop):
        return judged
    claimed = await claim(ctx, judged)
    if isinstance(claimed, Stop):
        return claimed
    cleared = await fence(ctx, claimed)
    if isinstance(cleared, Stop):
        return cleared
    return await record(ctx, await run(ctx, cleared))


async def _load(ctx: Executor, job: Job) -> EffectState:
    return await ctx.effects.load(job.ref, job.pool, job.call, job.sequence, job.reach)


# --- judge


async def judge(ctx: Executor, job: Job, effect: EffectState) -> Judged | Stop:
    """Whether the command may run at all, and under which claim. ``effect``: what its records say."""
    if effect.outcome is not None:
        return Done()  # checked first: after a lost ack the command comes again to the process that ran it
    match await _earlier_commands(ctx, job, effect):
        case Waits(on):
            return _wait_for(ctx, job, on)
        case Blocked() as blocked:
            return await _refuse(ctx, job, effect, blocking.RULE, blocked.say(job.command.resource))
        case Clear():
            pass
    equipment = await _equip(ctx, job, effect)
    if isinstance(equipment, Stop):
        return equipment
    if effect.claim is not None and effect.claim.owner == ctx.me and job.identity not in ctx.begun:
        # The answer to this process's claim was lost, and nothing was begun under it; or the read is old, and the claim has been
        # released since, or settled. A fenced write tells which: release it, and claim again.
        effect = await ctx.recorder.release(job, effect, "its answer was lost")
    return await _permit(ctx, job, effect, equipment)


def _wait_for(ctx: Executor, job: Job, on: str) -> RetryIn:
    ctx.log.debug("command.waiting", call=str(job), reason=f"{on} has no outcome yet")
    return RetryIn(backoff_s(job.attempt, EARLIER_S, HOLD_S, ctx.random.random()))


async def _earlier_commands(ctx: Executor, job: Job, effect: EffectState) -> Clear | Waits | Blocked:
    """What the earlier commands of the session say. A command that was begun has passed them already."""
    if not job.command.after or effect.claim or effect.first_claim:
        return Clear()
    earlier = [
        (
            f"{job.ref.session}/{each.call}",
            await ctx.effects.look(job.ref, each.pool, each.call, job.sequence),
        )
        for each in job.command.after
    ]
    return blocking.before_claim(earlier)


async def _equip(ctx: Executor, job: Job, effect: EffectState) -> Equipment | Stop:
    try:
        agent = await ctx.agents.get(job.ref.workspace, job.command.agent)
    except NotFound as error:
        if job.attempt < AGENT_TRIES_MAX:
            return RetryIn(AGAIN_S)
        if effect.claim is not None or effect.first_claim:
            raise  # an executor that knew the agent began it
        return await _refuse(ctx, job, effect, "unknown_agent", error.message)
    pack = ctx.load_pack(agent.pack)
    tool = tool_of(pack, agent, job)
    if tool is None:
        return await _without_tool(ctx, job, effect, pack)
    return Equipment(agent, pack, tool, await ctx.runtime_for(job.ref.workspace, agent))


async def _without_tool(ctx: Executor, job: Job, effect: EffectState, pack: Pack) -> Stop:
    """There is nothing to run or to ask: refused if it was not begun, otherwise settled as an irreversible effect."""
    match await _next(ctx, effect, EffectClass.IRREVERSIBLE):
        case Judge():
            text = f"there is no tool {job.command.tool!r} in pool {job.pool!r}"
            return await _refuse(ctx, job, effect, "unknown_tool", text)
        case MarkUnknown(reason):
            await ctx.recorder.not_settled(job, pack.name, effect, reason)
        case Wait():
            return RetryIn(WAIT_S)
        case _:
            pass
    return Done()


async def _next(ctx: Executor, effect: EffectState, effect_class: EffectClass) -> Action:
    if effect.claim is None:
        return next_action(effect, effect_class, ctx.me, "unknown")
    owner = effect.claim.owner
    if owner == ctx.me:
        # It began here and ended without an outcome, which only a fault can cause: as if this process had died then.
        return next_action(effect, effect_class, Owner(ctx.me.instance, ""), "dead")
    liveness = await ctx.peers.alive(owner.instance, owner.incarnation)
    return next_action(effect, effect_class, ctx.me, liveness)


async def _permit(ctx: Executor, job: Job, effect: EffectState, equipment: Equipment) -> Judged | Stop:
    pack = equipment.pack.name
    match await _next(ctx, effect, equipment.tool.effect_class):
        case Nothing():
            return Done()
        case Wait(reason):
            ctx.log.debug("command.waiting", call=str(job), reason=reason)
            return RetryIn(WAIT_S)
        case MarkUnknown(reason):
            await ctx.recorder.not_settled(job, pack, effect, reason)
            return Done()
        case ClaimAgain(judged=judged, doubt=doubt):
            if await _is_deferred(ctx, job, effect):
                return RetryIn(HOLD_S)
            if not judged and not (await _verdict(ctx, job, effect, equipment)).allowed:
                await ctx.recorder.not_settled(job, pack, effect, "")
                return Done()
            return Judged(job, effect, equipment, claims=True, doubt=doubt)
        case Judge(claim=claims):
            return await _permit_first(ctx, job, effect, equipment, claims=claims)


async def _permit_first(
    ctx: Executor, job: Job, effect: EffectState, equipment: Equipment, *, claims: bool
) -> Judged | Stop:
    """The command was not begun."""
    if effect.gate is not None and effect.approval is None:
        return Done()
    if claims and job.attempt > 1 and await _is_deferred(ctx, job, effect):
        return RetryIn(HOLD_S)
    verdict = await _verdict(ctx, job, effect, equipment)
    if not verdict.allowed:
        # No release asks a person at a gate yet: a command that needs an approval is refused.
        return await _refuse(ctx, job, effect, verdict.rule, verdict.reason)
    if (broken := await _constrained_at_decision(ctx, job, equipment)) is not None:
        return await _refuse(ctx, job, effect, broken.rule, broken.reason)
    return Judged(job, effect, equipment, claims=claims)


async def _constrained_at_decision(ctx: Executor, job: Job, equipment: Equipment) -> Verdict | None:
    try:
        anchor, _ = await ctx.sessions.read_anchor(job.ref, job.sequence)
    except NotFound:
        return None  # the fence refuses it
    return await constrain(ctx, job, equipment, anchor)


async def constrain(ctx: Executor, job: Job, equipment: Equipment, anchor: Anchor) -> Verdict | None:
    """The refusal by a rule that people gave the session as a constraint, on facts observed now; None: nothing forbids it."""
    if not anchor.constraint_rules:
        return None
    agent = equipment.agent
    seen = await observe(partial(ask, ctx.bus, job.ref.workspace, agent.name), ctx.clock)
    command = job.command
    question = Question(command.tool, command.args, command.resource, agent.grants, anchor.facts, seen)
    return constrained(question, anchor.constraint_rules, cel.evaluate)


async def _is_deferred(ctx: Executor, job: Job, effect: EffectState) -> bool:
    """Whether the session waits: a claim would only be released again, and fill the journal."""
    verdict, *_ = await _read_fence(ctx, job, effect, job.sequence)
    return isinstance(verdict, Deferred)


async def _verdict(ctx: Executor, job: Job, effect: EffectState, equipment: Equipment) -> Verdict:
    """The policy's verdict. A person's rejection overrides it, and an approval opens the gate that it asks for."""
    if effect.approval is not None and not effect.approval.approved and effect.gate is not None:
        return Verdict("refused", effect.gate.rule, f"{effect.approval.by} said no")
    agent = equipment.agent
    verdict = await admit(
        job.command,
        equipment.tool,
        agent.grants,
        equipment.pack.invariants(agent),
        anchor=partial(ctx.sessions.read_anchor, job.ref, job.sequence),
        observation=partial(observe, partial(ask, ctx.bus, job.ref.workspace, agent.name), ctx.clock),
        now_ms=ctx.clock.now_ms(),
    )
    approved = effect.approval is not None and effect.approval.approved
    return replace(verdict, decision="allowed") if verdict.decision == "gate" and approved else verdict


# --- claim


async def claim(ctx: Executor, state: Judged) -> Claimed | Stop:
    """Claim the command for this process, once no other session is at work on its resource.

    Raises:
        Fenced: another process wrote to the command, or to the register of its resource, first. Unavailable, Damaged.
    """
    job, effect = state.job, state.effect
    if state.claims:
        if effect.claim is None and not effect.first_claim:
            match await _enter_register(ctx, state):
                case Waits(on):
                    return _wait_for(ctx, job, on)
                case Clear():
                    pass
        key = effect.claim.effect_key if effect.claim else job.command.effect_key
        effect = await ctx.recorder.claim(job, effect, key, doubt=state.doubt)
    return Claimed(job, effect, state.equipment, state.claims, state.doubt)


async def _enter_register(ctx: Executor, state: Judged) -> Clear | Waits:
    """Enter a command that was not begun in the register of its resource, in place of effects that no longer matter."""
    job = state.job
    resource = resource_of(job, state.equipment.pack.name)
    if not resource.name:
        return Clear()
    block = await ctx.blocks.read(resource)
    mine = entry_of(job, state.effect.attempts + 1)
    # `judge` has checked its own session: each earlier command has its outcome, and each later one waits for this.
    others: list[tuple[Entry, EffectState]] = []
    for entry in (entry for entry in block.entries if entry.session != mine.session):
        try:
            others.append((entry, await _effect_of(ctx, job, entry, block.head)))
        except Damaged:
            # The quarantine of that session reports it. Its effect is uncertain until the session is repaired.
            return Waits(str(entry))
    verdict = blocking.before_first_claim((str(entry), entry.attempt, other) for entry, other in others)
    if isinstance(verdict, Clear):
        unknown = tuple(entry for entry, other in others if other.unknown)
        with around(Edge.EXECUTOR_BLOCK_BEFORE):
            await ctx.blocks.enter_only(resource, block, (*unknown, mine), ctx.clock.now_ms())
    return verdict


async def _effect_of(ctx: Executor, job: Job, entry: Entry, reach: int) -> EffectState:
    ref = SessionRef(job.ref.workspace, entry.session)
    return await ctx.effects.look(ref, entry.pool, entry.call, reach)


# --- fence


async def fence(ctx: Executor, state: Claimed) -> Cleared | Stop:
    """Whether the session lets the command run, read up to the claim. A read is fenced at the command itself."""
    job, effect, equipment = state.job, state.effect, state.equipment
    read = _read_under_claim if state.claims else _read_without_claim
    match await read(ctx, state):
        case Proceed():
            return Cleared(job, effect, equipment, state.claims, state.doubt)
        case Blocked() as blocked:
            return await _refuse(ctx, job, effect, blocking.RULE, blocked.say(job.command.resource))
        case Verdict() as broken if effect.claim is None or effect.claim.sequence == effect.first_claim:
            return await _refuse(ctx, job, effect, broken.rule, broken.reason)
        case Verdict() as broken:
            await ctx.recorder.not_settled(job, equipment.pack.name, effect, f"{OVER}; {broken.reason}")
            return Done()
        case FencedOff(first=first) if first or not state.claims:
            return await _refuse(ctx, job, effect, "fence", f"run {job.call.run} is over")
        case FencedOff() if equipment.tool.effect_class is EffectClass.RECONCILABLE:
            return Cleared(job, effect, equipment, state.claims, state.doubt)  # `run` asks the provider first
        case FencedOff():
            await ctx.recorder.not_settled(job, equipment.pack.name, effect, OVER)
            return Done()
        case Deferred(reason):
            if state.claims:
                await ctx.recorder.release(job, effect, reason)
            return RetryIn(HOLD_S)


async def _read_without_claim(ctx: Executor, state: Claimed) -> Fence | Verdict:
    verdict, _, anchor = await _read_fence(ctx, state.job, state.effect, state.job.sequence)
    return await _with_constraints(ctx, state, verdict, anchor)


async def _with_constraints(
    ctx: Executor, state: Claimed, verdict: Fence, anchor: Anchor | None
) -> Fence | Verdict:
    if anchor is None or not isinstance(verdict, Proceed):
        return verdict
    return await constrain(ctx, state.job, state.equipment, anchor) or verdict


async def _read_under_claim(ctx: Executor, state: Claimed) -> Fence | Blocked | Verdict:
    """What the session says, and the register of the command's resource, in one answer that reaches up to the claim."""
    job, effect = state.job, state.effect
    assert effect.claim is not None  # noqa: S101 - `claim` has written it
    resource = resource_of(job, state.equipment.pack.name)
    registers = [resource.subject] if resource.name else []
    verdict, found, anchor = await _read_fence(ctx, job, effect, effect.claim.sequence, registers)
    constrained_verdict = await _with_constraints(ctx, state, verdict, anchor)
    if not isinstance(constrained_verdict, Proceed) or not found:
        return constrained_verdict
    mine = entry_of(job)
    entries = [entry for entry in read_block(found[0]).entries if not entry.is_of(mine)]
    others = [(entry, await _effect_of(ctx, job, entry, effect.claim.sequence)) for entry in entries]
    blocked = blocking.under_claim(effect, [(str(entry), other) for entry, other in others])
    return blocked if isinstance(blocked, Blocked) else verdict


async def _read_fence(
    ctx: Executor, job: Job, effect: EffectState, at_least: int, registers: Sequence[str] = ()
) -> tuple[Fence, list[Stored], Anchor | None]:
    """What the anchor and the kill switches say, the contents of ``registers``, and the anchor: one answer, up to ``at_least``.

    The fence comes first: a command that is fenced off does not wait for a kill switch.
    """
    switches = subjects_of(job.ref, job.command.agent)
    try:
        anchor, found = await ctx.sessions.read_beside(job.ref, [*switches, *registers], at_least)
    except NotFound:  # the session was erased
        return FencedOff(first=effect.claim is None or effect.claim.sequence == effect.first_claim), [], None
    verdict, switch = after_claim(effect, job.call.run, anchor), first_on(found)
    if switch is not None and isinstance(verdict, Proceed):
        return Deferred(str(switch)), [], anchor
    return verdict, [each for each in found if each.subject in registers], anchor


# --- run


async def run(ctx: Executor, state: Cleared) -> Executed:
    """Run the tool. A command that another process began, and that can be reconciled, is reconciled first."""
    job, effect, equipment = state.job, state.effect, state.equipment
    now_ms = ctx.clock.now_ms()
    context = context_of(job, equipment, effect, now_ms=now_ms, heartbeat_s=ctx.heartbeat_s)
    attempts = Attempts(job.command, equipment, context, ctx.clock, lambda: _may_run_again(ctx, state))
    again = effect.claim is not None and effect.claim.sequence != effect.first_claim
    ctx.begun.add(job.identity)
    if again and equipment.tool.effect_class is EffectClass.RECONCILABLE:
        ran = await attempts.resume(doubt=effect.doubt)
    else:
        ran = await attempts.run(doubt=again)
    return Executed(state, ran)


async def _may_run_again(ctx: Executor, state: Cleared) -> bool:
    """Whether the tool may be started once more. Waits for a paused session, up to `HOLD_S_MAX`."""
    claim = state.effect.claim
    if claim is None:
        return True
    deadline_s = ctx.clock.elapsed_s() + HOLD_S_MAX
    while ctx.clock.elapsed_s() < deadline_s:
        try:
            verdict, *_ = await _read_fence(ctx, state.job, state.effect, claim.sequence)
            if not isinstance(verdict, Deferred):
                return isinstance(verdict, Proceed)
        except Unavailable:
            pass
        await ctx.clock.sleep(HOLD_S)
    return False


# --- record


async def record(ctx: Executor, state: Executed) -> Stop:
    """Write the outcome of what ran."""
    job, equipment, ran = state.command.job, state.command.equipment, state.ran
    settled = await ctx.recorder.ran(
        job, equipment.pack.name, state.command.effect, ran, durable=not equipment.tool.ephemeral
    )
    ctx.begun.discard(job.identity)
    ctx.log.info("command.ran", call=str(job), tool=equipment.tool.name, state=ran.state)
    # Without an outcome another executor has claimed it, and may die: then the message must come again.
    return Done() if settled else RetryIn(WAIT_S)


async def _refuse(ctx: Executor, job: Job, effect: EffectState, rule: str, reason: str) -> Stop:
    ctx.log.info("command.refused", call=str(job), tool=job.command.tool, rule=rule)
    await ctx.recorder.settle(job, effect, outcome(job, "refused", reason, rule=rule, claim=effect.claim))
    return Done()
