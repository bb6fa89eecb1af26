"""Writes the claims, releases and outcomes of commands.

A tool that ran has had its effect, so its outcome is recorded however long that takes, or kept as evidence that it came too
late; nothing in its result is a reason to fail.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import structlog

from anchorwatch.bus.port import Bus
from anchorwatch.codec.plain import plain
from anchorwatch.core.effect.state import Claimed, EffectEvent, EffectState, Outcome, Owner, Released
from anchorwatch.core.errors import Fenced, TooLarge, Unavailable
from anchorwatch.edges import Edge, around
from anchorwatch.executor.attempts import Ran
from anchorwatch.executor.job import Job, entry_of, outcome, resource_of
from anchorwatch.journal.artifacts import ArtifactJournal, Kept, Provenance
from anchorwatch.journal.blocks import BlockJournal
from anchorwatch.journal.effects import EffectJournal
from anchorwatch.journal.late import late_outcome, write_late
from anchorwatch.packs.port import ToolResult
from anchorwatch.service.context import Clock

RETRY_S = 0.5
TEXT_BYTES_MAX = 8 * 1024
DATA_BYTES_MAX = 64 * 1024
ARTIFACT_BYTES_MAX = 16 * 1024 * 1024
PREVIEW_CHARS = 2_000
READ_BY_THE_MESH = ("next_check_at_ms", "notify")

Keep = Callable[[str, str, bytes], Awaitable[Kept]]
"""(name, media type, bytes) -> the artifact as it was stored."""


@dataclass(frozen=True, slots=True)
class Recorder:
    """``identity`` names this process in records."""

    bus: Bus
    effects: EffectJournal
    blocks: BlockJournal
    artifacts: ArtifactJournal
    clock: Clock
    me: Owner
    identity: str
    log: structlog.stdlib.BoundLogger

    async def claim(self, job: Job, state: EffectState, key: str, *, doubt: bool) -> EffectState:
        """Claim the command for this process, after the events that ``state`` holds. ``key``: its effect key.

        Raises:
            Fenced: another process wrote to this command meanwhile. Unavailable.
        """
        with around(Edge.EXECUTOR_CLAIM_BEFORE):
            return await self._append(job, state, Claimed(self.me, state.attempts + 1, key, doubt))

    async def release(self, job: Job, state: EffectState, reason: str) -> EffectState:
        """Release this process's claim: nothing was begun under it.

        Raises:
            Fenced, Unavailable: as `claim`.
        """
        with around(Edge.EXECUTOR_RELEASE_BEFORE):
            return await self._append(job, state, Released(self.me, reason))

    async def settle(self, job: Job, state: EffectState, done: Outcome) -> None:
        """Record an outcome that is certain.

        Raises:
            Fenced, Unavailable: as `claim`.
        """
        with around(Edge.EXECUTOR_OUTCOME_BEFORE):
            await self._append(job, state, done)

    async def _append(self, job: Job, state: EffectState, event: EffectEvent) -> EffectState:
        return await self.effects.append(job.ref, job.pool, job.call, state, event, self.clock.now_ms())

    async def unknown(self, job: Job, pack: str, state: EffectState, done: Outcome) -> None:
        """Record that the outcome is unknown. That blocks the command's resource, so its register is written first.

        Raises:
            Fenced, Unavailable: as `claim`.
        """
        if done.resource:
            with around(Edge.EXECUTOR_BLOCK_BEFORE):
                await self.blocks.enter(resource_of(job, pack), entry_of(job), self.clock.now_ms())
        await self.settle(job, state, done)

    async def not_settled(self, job: Job, pack: str, state: EffectState, reason: str) -> None:
        """As `unknown`, for a command that another process began, or may have begun where the journal lost records.

        Raises:
            Fenced, Unavailable: as `claim`.
        """
        error = "owner_died"
        if state.lost_claim:
            error = "claim_lost"
            reason = f"the journal lost {state.lost_claim}, perhaps its claim; it may have happened"
        await self.unknown(job, pack, state, outcome(job, "unknown", reason, error=error, claim=state.claim))

    async def ran(self, job: Job, pack: str, state: EffectState, ran: Ran, *, durable: bool) -> bool:
        """Record how a run ended. Gives up only where another process has written to the command.

        Returns whether the command has an outcome, this one or another.
        """
        done = outcome(job, ran.state, ran.text, error=ran.error, claim=state.claim, durable=durable)
        if ran.result is not None:
            done = await self._with_result(job, done, ran.result)
        while True:
            try:
                if done.state == "unknown":
                    await self.unknown(job, pack, state, done)
                else:
                    await self.settle(job, state, done)
                return True
            except TooLarge as error:
                done = replace(done, text=f"its answer is too large to record: {error.message}", data={})
            except Unavailable as error:
                self.log.warning("outcome.waiting", call=str(job), reason=error.message)
                await self.clock.sleep(RETRY_S)
            except Fenced:
                # The other write may be our own, of an attempt that seemed lost.
                current = await self._current(job)
                if current != done and state.claim is not None:
                    await self._late(job, done)
                return current is not None

    async def _with_result(self, job: Job, done: Outcome, result: ToolResult) -> Outcome:
        async def keep(name: str, media_type: str, data: bytes) -> Kept:
            return await self._keep(job, name, media_type, data)

        while True:
            try:
                text, data = await shape(result, keep)
                return replace(done, text=text, data=data)
            except Unavailable:
                await self.clock.sleep(RETRY_S)

    async def _keep(self, job: Job, name: str, media_type: str, data: bytes) -> Kept:
        command = job.command
        origin = Provenance(
            maker=job.command.effect_key,
            acting_as=f"{command.agent} by {self.identity}",
            run_id=job.call.run,
            call=str(job.call),
            derived_from=(command.observation_digest,) if command.observation_digest else (),
        )
        with around(Edge.EXECUTOR_ARTIFACT_BEFORE):
            at_ms = self.clock.now_ms()
            return await self.artifacts.keep(job.ref, name, media_type, data, origin, at_ms=at_ms)

    async def _current(self, job: Job) -> Outcome | None:
        while True:
            try:
                return (await self.effects.load(job.ref, job.pool, job.call, job.sequence, job.reach)).outcome
            except Unavailable:
                await self.clock.sleep(RETRY_S)

    async def _late(self, job: Job, done: Outcome) -> None:
        self.log.warning("outcome.late", call=str(job), state=done.state)
        late = late_outcome(done, self.me)
        while True:
            try:
                with around(Edge.EXECUTOR_LATE_BEFORE):
                    await write_late(self.bus, job.ref, late, at_ms=self.clock.now_ms(), writer=self.identity)
                return
            except Unavailable:
                await self.clock.sleep(RETRY_S)


async def shape(result: ToolResult, keep: Keep) -> tuple[str, dict[str, Any]]:
    """The text and the data of a result as its record holds them: bounded, with large parts stored as artifacts.

    Raises:
        Unavailable: an artifact may not be stored; calling again is safe.
    """
    text, data = str(plain(str(result.text))), plain(dict(result.data))
    artifacts, notes = [], []
    for artifact in result.artifacts:
        try:
            artifacts.append(await keep(artifact.name, artifact.media_type, artifact.data))
        except TooLarge as error:
            notes.append(f"{artifact.name} was not kept: {error.message}")
    if len(text.encode()) > TEXT_BYTES_MAX:
        whole = await keep("output.txt", "text/plain; charset=utf-8", text.encode()[:ARTIFACT_BYTES_MAX])
        artifacts.append(whole)
        text = f"{text[:PREVIEW_CHARS]}\n… {whole.size_bytes} bytes in all, kept as {whole.artifact_id}"
    data = await _bounded(data, keep)
    if artifacts:
        data["artifacts"] = [_reference(each) for each in artifacts]
    return "\n".join([text, *notes]), data


async def _bounded(data: dict[str, Any], keep: Keep) -> dict[str, Any]:
    encoded = json.dumps(data, ensure_ascii=False).encode()
    if len(encoded) <= DATA_BYTES_MAX:
        return data
    whole = await keep("data.json", "application/json", encoded[:ARTIFACT_BYTES_MAX])
    small = {name: data[name] for name in READ_BY_THE_MESH if name in data}
    return {**small, "data": _reference(whole)}


def _reference(kept: Kept) -> dict[str, Any]:
    return {
        "id": kept.artifact_id,
        "name": kept.name,
        "media_type": kept.media_type,
        "size_bytes": kept.size_bytes,
        "sha256": kept.sha256,
    }
