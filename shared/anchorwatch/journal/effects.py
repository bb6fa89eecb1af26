"""A command's effect in the journal: load its family, append to it under its fence."""

from __future__ import annotations

from collections.abc import Sequence

from anchorwatch.bus.port import Bus, Expect, Stored
from anchorwatch.codec import encode
from anchorwatch.core.effect.state import EffectEvent, EffectState, Outcome, apply_effect, with_holes
from anchorwatch.core.errors import Damaged, Unavailable
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Record
from anchorwatch.journal.commit import DEADLINE_S, Committer, Write
from anchorwatch.journal.effect_mapping import effect_body, read_effect
from anchorwatch.topology.subjects import EFFECT_FAMILY, SessionSubjects, parse_register


class EffectJournal:
    """Reads and writes the families of commands. ``writer`` names the process in the records."""

    def __init__(self, bus: Bus, committer: Committer, writer: str) -> None:
        self._bus = bus
        self._committer = committer
        self._writer = writer
        self._lost: Sequence[tuple[int, int]] = ()
        self._asked = 0

    async def load(
        self, ref: SessionRef, pool: str, call: CallId, at_least: int, reach: int = 0
    ) -> EffectState:
        """The effect as recorded, from an answer that reaches to ``at_least``, the command's own sequence, and to ``reach``.

        An unreadable record is ignored if an outcome follows it, because only the outcome counts then. Without
        an outcome, a record that the journal lost after the command may have been a claim.

        Raises:
            Unavailable: no answer reached so far. Damaged: a record is unreadable, and no outcome follows it.
        """
        state = await self._fold(ref, pool, call, at_least + 1, max(at_least, reach))
        if state.outcome is None:
            state = with_holes(state, at_least, await self._holes())
        return state

    async def _holes(self) -> Sequence[tuple[int, int]]:
        """What the journal has lost: asked once for each connection, since a server finds that out when it starts."""
        now = self._bus.connections
        if self._asked != now:
            self._lost = await self._bus.holes(self._committer.stream)
            self._asked = now
        return self._lost

    async def look(self, ref: SessionRef, pool: str, call: CallId, reach: int) -> EffectState:
        """As `load`, for a command that was decided at an unknown sequence before ``reach``."""
        return await self._fold(ref, pool, call, 1, reach)

    async def before(
        self, ref: SessionRef, pool: str, call: CallId, decided_at: int, fence: int
    ) -> EffectState:
        """The effect as it was when the anchor at sequence ``fence`` was stored. ``decided_at``: the sequence of its command.

        What is recorded later changes nothing. A record that the journal lost between the two may have been a claim.

        Raises:
            as `load`.
        """
        state = await self._fold(ref, pool, call, decided_at + 1, fence, end=fence)
        holes = [hole for hole in await self._holes() if hole[0] < fence]
        return with_holes(state, decided_at, holes)

    async def _fold(
        self, ref: SessionRef, pool: str, call: CallId, start: int, reach: int, end: int | None = None
    ) -> EffectState:
        state, damage = EffectState(), None
        for stored in await self._family(ref, pool, call, start, reach):
            if end is not None and stored.sequence >= end:
                break
            try:
                event = read_effect(stored)
            except Damaged as error:
                damage = type(error)(
                    f"sequence {stored.sequence}: a record of {ref} {call} cannot be read: {error.message}",
                    hint=error.hint,
                    sequence=stored.sequence,
                )
                continue
            state = apply_effect(state, stored.sequence, stored.time_ms, event)
            damage = None if isinstance(event, Outcome) else damage
        if damage is not None:
            raise damage
        return state

    async def _family(self, ref: SessionRef, pool: str, call: CallId, start: int, reach: int) -> list[Stored]:
        subject, found = SessionSubjects(ref).effect_family(pool, call), list[Stored]()
        while True:
            page = await self._bus.range(self._committer.stream, subject, start)
            found += page.messages
            if not page.more:
                if page.up_to < reach:
                    raise Unavailable("the answering server is behind")
                return found
            start = found[-1].sequence + 1

    async def append(
        self,
        ref: SessionRef,
        pool: str,
        call: CallId,
        state: EffectState,
        event: EffectEvent,
        at_ms: int,
        deadline_s: float = DEADLINE_S,
    ) -> EffectState:
        """Record an event directly after what ``state`` knows; returns the state with it.

        Raises:
            Fenced: another process wrote to this family first. Unavailable: not confirmed in time.
        """
        return await self.append_all(ref, pool, call, state, (event,), at_ms, deadline_s)

    async def append_all(
        self,
        ref: SessionRef,
        pool: str,
        call: CallId,
        state: EffectState,
        events: Sequence[EffectEvent],
        at_ms: int,
        deadline_s: float = DEADLINE_S,
    ) -> EffectState:
        """As `append`, of several events: all or none."""
        subjects = SessionSubjects(ref)
        writes = []
        for event in events:
            register, kind, body = effect_body(event)
            payload, _ = encode(Record(kind, at_ms, self._writer, body))
            writes.append(Write(subjects.effect(pool, call, register), payload))
        fence = Expect(subjects.effect_family(pool, call), state.head)
        last = await self._committer.commit(writes, fence, deadline_s)
        for sequence, event in enumerate(events, last - len(events) + 1):
            state = apply_effect(state, sequence, at_ms, event)
        return state

    async def find_pool(self, ref: SessionRef, call: CallId, reach: int) -> str | None:
        """The pool of a command, by the records of its family; None without records.

        Raises:
            Unavailable: no answer reached up to ``reach``.
        """
        family = EFFECT_FAMILY.filter(
            workspace=ref.workspace,
            session=ref.session,
            run=call.run,
            step=call.step,
            n=call.n,
        )
        page = await self._bus.range(self._committer.stream, family, 1, limit=1)
        if page.messages:
            return parse_register(page.messages[0].subject).pool
        if page.up_to < reach:
            raise Unavailable("the answering server is behind")
        return None
