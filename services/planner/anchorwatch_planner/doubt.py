"""A look that meets what it cannot read: the session is quarantined, and the look has come to rest."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from anchorwatch.bus.port import Bus
from anchorwatch.core.errors import Damaged, NewerSchema
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.quarantine import quarantine
from anchorwatch.service.context import Clock, Identity
from anchorwatch.service.worker import Done, RetryIn

from anchorwatch_planner.evidence import Cause
from anchorwatch_planner.look import Looker
from anchorwatch_planner.verdict import Verdict

AGAIN_S = 0.1


class DoubtingLooker:
    """Looks as a `Looker` does, and has sessions refuse to run whose journal is damaged."""

    def __init__(
        self,
        looker: Looker,
        bus: Bus,
        committer: Committer,
        identity: Identity,
        clock: Clock,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._looker = looker
        self._bus = bus
        self._committer = committer
        self._identity = identity
        self._clock = clock
        self._log = log

    async def look(self, ref: SessionRef, causes: Sequence[Cause]) -> Verdict:
        """As `Looker.look`.

        Raises:
            NewerSchema: a newer release must look. Damaged: nothing can be written to this session. And as `Looker.look`.
        """
        try:
            return await self._looker.look(ref, causes)
        except NewerSchema:
            raise
        except Damaged:
            return await self._in_doubt(ref, causes)

    async def _in_doubt(self, ref: SessionRef, causes: Sequence[Cause]) -> Verdict:
        held = max((cause.sequence for cause in causes), default=0)

        why = ""

        async def read(at_least: int) -> None:
            nonlocal why
            try:
                await self._looker.reread(ref, max(held, at_least))
            except Damaged as damage:
                why = str(damage)
                raise

        done = await quarantine(
            self._bus,
            self._committer,
            ref,
            read,
            at_ms=self._clock.now_ms(),
            writer=self._identity.execution_id,
        )
        if done == "written":
            self._log.error("session quarantined", session=str(ref), why=why)
        # Whole: it was only what this process knew from before, or it has been repaired.
        return RetryIn(AGAIN_S) if done == "whole" else Done()
