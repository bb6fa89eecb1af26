"""May a command run, as far as the journal knows: the fence of its session, and what is open on its resource."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from anchorwatch.bus.port import Stored
from anchorwatch.core.effect import blocking
from anchorwatch.core.effect.blocking import Blocked, Clear, Waits
from anchorwatch.core.effect.decide import Go, Hold, Stale, after_claim
from anchorwatch.core.effect.state import EffectState
from anchorwatch.core.errors import Damaged, NotFound
from anchorwatch.core.names import SessionRef
from anchorwatch.edges import Edge, reached
from anchorwatch.execution.job import Job
from anchorwatch.journal.blocks import BlockJournal, Entry, read_block, resource_of
from anchorwatch.journal.effects import EffectJournal
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.journal.switches import first_on, subjects_of
from anchorwatch.service.context import Clock


@dataclass(frozen=True, slots=True)
class Leave:
    """The reading half of a runner."""

    sessions: SessionJournal
    effects: EffectJournal
    blocks: BlockJournal
    clock: Clock
    log: structlog.stdlib.BoundLogger

    async def before(self, job: Job, state: EffectState) -> Clear | Waits | Blocked:
        """What the earlier commands of its session say. Of a command that was begun they have had their say."""
        if not job.command.after or state.outcome or state.claim or state.first_claim:
            return Clear()
        earlier = [
            (
                f"{job.ref.session}/{each.call}",
                await self.effects.look(job.ref, each.pool, each.call, job.sequence),
            )
            for each in job.command.after
        ]
        return blocking.before_claim(earlier)

    async def fence(self, job: Job, state: EffectState, at_least: int) -> Go | Stale | Hold:
        """What the anchor says, read up to ``at_least``."""
        try:
            switches = subjects_of(job.ref, job.command.agent)
            anchor, found = await self.sessions.read_beside(job.ref, switches, at_least)
        except NotFound:
            return _erased(state)
        return _held(after_claim(state, job.call.run, anchor), found)

    async def under_claim(self, job: Job, pack: str, state: EffectState) -> Go | Stale | Hold | Blocked:
        """What the anchor and the register of its resource say, in one answer that reaches up to the standing claim."""
        assert state.claim is not None  # noqa: S101 - the caller claimed it
        resource = resource_of(job.ref, pack, job.command.resource)
        subjects = subjects_of(job.ref, job.command.agent) + ([resource.subject] if resource.name else [])
        try:
            anchor, found = await self.sessions.read_beside(job.ref, subjects, state.claim.sequence)
        except NotFound:
            return _erased(state)
        fence = _held(after_claim(state, job.call.run, anchor), found)
        found = tuple(each for each in found if each.subject == resource.subject)
        if not isinstance(fence, Go) or not found:
            return fence
        mine = Entry(job.ref.session, job.call, job.pool)
        entries = [each for each in read_block(found[0]).entries if not each.is_of(mine)]
        others = [(each, await self._look(job, each, state.claim.sequence)) for each in entries]
        verdict = blocking.under_claim(state, [(str(each), other) for each, other in others])
        return verdict if isinstance(verdict, Blocked) else fence

    async def resource(self, job: Job, pack: str, state: EffectState) -> Clear | Waits:
        """Whether another session is at work on its resource. Clear: the register has the claim that is to follow.

        Raises:
            Fenced: another command entered the register first. Unavailable, Damaged.
        """
        resource = resource_of(job.ref, pack, job.command.resource)
        if not resource.name:
            return Clear()
        block = await self.blocks.read(resource)
        mine = Entry(job.ref.session, job.call, job.pool, state.attempts + 1)
        # Of its own session `before` has told: each earlier command has its outcome, and each later one waits for this.
        others: list[tuple[Entry, EffectState]] = []
        for each in (each for each in block.entries if each.session != mine.session):
            try:
                others.append((each, await self._look(job, each, block.head)))
            except Damaged:
                # The quarantine of that session reports it. Until its repair nobody knows what the effect did.
                return Waits(str(each))
        verdict = blocking.before_first_claim((str(each), each.attempt, other) for each, other in others)
        if isinstance(verdict, Clear):
            unknown = tuple(each for each, other in others if other.unknown)
            reached(Edge.EXECUTOR_BLOCK_BEFORE)
            await self.blocks.enter_only(resource, block, (*unknown, mine), self.clock.now_ms())
            reached(Edge.EXECUTOR_BLOCK_AFTER)
        return verdict

    async def _look(self, job: Job, entry: Entry, reach: int) -> EffectState:
        ref = SessionRef(job.ref.workspace, entry.session, job.ref.shard)
        return await self.effects.look(ref, entry.pool, entry.call, reach)


def _held(fence: Go | Stale | Hold, found: Sequence[Stored]) -> Go | Stale | Hold:
    """The fence's answer, and then the kill switches': what is below the fence need not wait for anybody."""
    switch = first_on(found) if isinstance(fence, Go) else None
    return fence if switch is None else Hold(str(switch))


def _erased(state: EffectState) -> Stale:
    """Of a session that was erased."""
    return Stale(first=state.claim is None or state.claim.sequence == state.first_claim)
