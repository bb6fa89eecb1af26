"""Writes what became of a command. What was run is recorded, however long it takes, or kept as evidence that it came too late."""

from __future__ import annotations

from dataclasses import dataclass, replace

import structlog

from anchorwatch.bus.port import Bus
from anchorwatch.core.effect.state import Claimed, EffectEvent, EffectState, Outcome, Owner
from anchorwatch.core.errors import Fenced, TooLarge, Unavailable
from anchorwatch.edges import Edge, reached
from anchorwatch.execution.attempts import Ran
from anchorwatch.execution.job import Job, effect_key, outcome
from anchorwatch.execution.results import shape
from anchorwatch.journal.artifacts import ArtifactJournal, Kept, Provenance
from anchorwatch.journal.blocks import BlockJournal, Entry, resource_of
from anchorwatch.journal.effects import EffectJournal
from anchorwatch.journal.late import late_outcome, write_late
from anchorwatch.packs.port import ToolResult
from anchorwatch.service.context import Clock

RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class Recorder:
    """The writing half of a runner. ``identity`` names this process in records."""

    bus: Bus
    effects: EffectJournal
    blocks: BlockJournal
    artifacts: ArtifactJournal
    clock: Clock
    me: Owner
    identity: str
    log: structlog.stdlib.BoundLogger

    async def append(self, job: Job, state: EffectState, event: EffectEvent) -> EffectState:
        """One event behind what ``state`` knows.

        Raises:
            Fenced: somebody wrote to this command's family meanwhile. Unavailable.
        """
        before, after = _edges_of(event)
        reached(before)
        at_ms = self.clock.now_ms()
        state = await self.effects.append(job.ref, job.pool, job.call, state, event, at_ms)
        reached(after)
        return state

    async def unknown(self, job: Job, pack: str, state: EffectState, done: Outcome) -> None:
        """Record that nobody knows what became of it. Its resource is blocked by that, so the index has it first.

        Raises:
            Fenced, Unavailable: as `append`.
        """
        if done.resource:
            reached(Edge.EXECUTOR_BLOCK_BEFORE)
            entry = Entry(job.ref.session, job.call, job.pool)
            await self.blocks.enter(resource_of(job.ref, pack, done.resource), entry, self.clock.now_ms())
            reached(Edge.EXECUTOR_BLOCK_AFTER)
        await self.append(job, state, done)

    async def not_settled(self, job: Job, pack: str, state: EffectState, why: str) -> None:
        """As `unknown`, of a command that another one began, or may have begun; ``why`` where it is known that it was.

        Raises:
            as `unknown`.
        """
        error = "owner_died"
        if state.lost_claim:
            error, why = (
                "claim_lost",
                f"the journal lost {state.lost_claim}, perhaps its claim; it may have happened",
            )
        await self.unknown(job, pack, state, outcome(job, "unknown", why, error=error, claim=state.claim))

    async def ran(self, job: Job, pack: str, state: EffectState, ran: Ran, *, durable: bool) -> bool:
        """Record what a run came to. It happened, so this gives up only when somebody else has the command.

        Returns whether the command has an outcome, this one or another.
        """
        done = outcome(job, ran.state, ran.text, error=ran.error, claim=state.claim, durable=durable)
        if ran.result is not None:
            done = await self._with_result(job, done, ran.result)
        return await self._insist(job, pack, state, done, mutating=state.claim is not None)

    async def _with_result(self, job: Job, done: Outcome, result: ToolResult) -> Outcome:
        async def keep(name: str, media_type: str, data: bytes) -> Kept:
            return await self._keep(job, name, media_type, data)

        while True:
            try:
                shaped = await shape(result, keep)
                return replace(done, text=shaped.text, data=shaped.data)
            except Unavailable:
                await self.clock.sleep(RETRY_S)

    async def _keep(self, job: Job, name: str, media_type: str, data: bytes) -> Kept:
        command = job.command
        origin = Provenance(
            maker=effect_key(job),
            acting_as=f"{command.agent} by {self.identity}",
            run_id=job.call.run,
            call=str(job.call),
            derived_from=(command.observation_digest,) if command.observation_digest else (),
        )
        reached(Edge.EXECUTOR_ARTIFACT_BEFORE)
        kept = await self.artifacts.keep(job.ref, name, media_type, data, origin, at_ms=self.clock.now_ms())
        reached(Edge.EXECUTOR_ARTIFACT_AFTER)
        return kept

    async def _insist(
        self, job: Job, pack: str, state: EffectState, done: Outcome, *, mutating: bool
    ) -> bool:
        while True:
            try:
                if done.state == "unknown":
                    await self.unknown(job, pack, state, done)
                else:
                    await self.append(job, state, done)
                return True
            except TooLarge as error:
                done = replace(done, text=f"its answer is too large to record: {error.message}", data={})
            except Unavailable as error:
                self.log.warning("an outcome waits for the journal", call=str(job), reason=error.message)
                await self.clock.sleep(RETRY_S)
            except Fenced:
                # What fenced us may be our own write, of an attempt that seemed lost.
                standing = await self._standing(job)
                if standing != done and mutating:
                    await self._late(job, done)
                return standing is not None

    async def _standing(self, job: Job) -> Outcome | None:
        while True:
            try:
                return (await self.effects.load(job.ref, job.pool, job.call, job.sequence, job.reach)).outcome
            except Unavailable:
                await self.clock.sleep(RETRY_S)

    async def _late(self, job: Job, done: Outcome) -> None:
        self.log.warning("an outcome came too late, and is kept as evidence", call=str(job), state=done.state)
        late = late_outcome(done, self.me)
        while True:
            try:
                reached(Edge.EXECUTOR_LATE_BEFORE)
                await write_late(self.bus, job.ref, late, at_ms=self.clock.now_ms(), writer=self.identity)
                reached(Edge.EXECUTOR_LATE_AFTER)
                return
            except Unavailable:
                await self.clock.sleep(RETRY_S)


def _edges_of(event: EffectEvent) -> tuple[Edge, Edge]:
    if isinstance(event, Claimed):
        return Edge.EXECUTOR_CLAIM_BEFORE, Edge.EXECUTOR_CLAIM_AFTER
    if isinstance(event, Outcome):
        return Edge.EXECUTOR_OUTCOME_BEFORE, Edge.EXECUTOR_OUTCOME_AFTER
    return Edge.EXECUTOR_RELEASE_BEFORE, Edge.EXECUTOR_RELEASE_AFTER
