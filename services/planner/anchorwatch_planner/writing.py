"""What a looker writes beside the turns themselves: ticks, refusals, snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from anchorwatch.core.errors import TooLarge
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import RefuseInputs
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.state import P1, Input
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.inputs import Receipt, accept
from anchorwatch.journal.mapping import input_body
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.service.context import Clock


@dataclass(frozen=True, slots=True)
class Scribe:
    """Writes for one planner process. ``writer`` names it in the records."""

    sessions: SessionJournal
    committer: Committer
    clock: Clock
    writer: str
    log: structlog.stdlib.BoundLogger

    async def tick(self, ref: SessionRef, input_id: str, now_ms: int) -> Receipt:
        """Make an input of the time that came; the first write wins.

        Raises:
            Unavailable.
        """
        body = input_body("tick", P1, type_=input_id.partition("-")[0])
        reached(Edge.PLANNER_TICK_INPUT_BEFORE)
        receipt = await accept(self.committer, ref, input_id, body, at_ms=now_ms, writer=self.writer)
        reached(Edge.PLANNER_TICK_INPUT_AFTER)
        return receipt

    async def refuse(
        self, ref: SessionRef, state: SessionState, inputs: Sequence[Input], reason: str
    ) -> SessionState:
        """Refuse what a session that is held cannot keep, and let loading start behind it.

        Raises:
            Fenced: it was written by others. Unavailable.
        """
        now_ms = self.clock.now_ms()
        events = decide(state, RefuseInputs(tuple(inputs), now_ms, self.writer, reason))
        reached(Edge.PLANNER_REFUSE_BEFORE)
        state = await self.sessions.append(ref, state, events, now_ms)
        reached(Edge.PLANNER_REFUSE_AFTER)
        self.log.warning("inputs refused", session=str(ref), count=len(inputs), why=reason)
        return await self.snapshot(ref, state)

    async def snapshot(self, ref: SessionRef, state: SessionState) -> SessionState:
        """Record the folded state of a session at rest, where it fits into a record.

        Raises:
            Fenced: it was written by others. Unavailable.
        """
        try:
            reached(Edge.PLANNER_SNAPSHOT_BEFORE)
            state = await self.sessions.snapshot(ref, state, self.clock.now_ms())
            reached(Edge.PLANNER_SNAPSHOT_AFTER)
        except TooLarge as error:
            # It only makes loading quick: without it the session is as whole as before.
            self.log.warning("no snapshot could be taken", session=str(ref), why=str(error))
        return state
