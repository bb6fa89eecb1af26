"""A session in the journal: load it by folding, append planner events under its fence."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from anchorwatch.bus.port import Bus, Expect, Stored
from anchorwatch.codec import decode_anchor, encode, encode_anchor
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import Damaged, NotFound, Unavailable
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.session import SessionState, replay
from anchorwatch.core.session.apply import Recorded, apply
from anchorwatch.core.session.events import (
    AnchorChanged,
    CommandDecided,
    Compacted,
    Event,
    ModelRequested,
    PlannerEvent,
    SnapshotTaken,
    StepDecided,
)
from anchorwatch.core.session.transitions import CONTROLS
from anchorwatch.journal.commit import DEADLINE_S, Committer, Write
from anchorwatch.journal.heads import check_effects, commit_behind, head_of, last_anchor
from anchorwatch.journal.mapping import event_body, read_session_record
from anchorwatch.journal.reading import STALE_ATTEMPTS_MAX, newest
from anchorwatch.topology.subjects import SessionSubjects

PAGE = 512


class SessionJournal:
    """Reads and writes sessions. ``writer`` names the process in the records."""

    def __init__(self, bus: Bus, committer: Committer, writer: str) -> None:
        self._bus = bus
        self._committer = committer
        self._writer = writer

    async def load(self, ref: SessionRef, at_least: int, known: SessionState | None = None) -> SessionState:
        """The session, complete at least up to journal sequence ``at_least``. ``known``: an earlier state to continue from.

        From nothing, it starts at the last snapshot, so the cost does not grow with the session's age.
        A session that was never made has no anchor in its state.

        Raises:
            Damaged: a record cannot be trusted, or the chain of digests is broken. Unavailable: no
            answer reached so far.
        """
        if known is None:
            known = await self._last_snapshot(ref)
            through = known.anchor.inputs_through if known.anchor else 0
            start = min(through, known.read_through) + 1
        else:
            start = known.read_through + 1
        return await self._read_on(SessionSubjects(ref).everything, known, start, at_least)

    async def with_inputs(self, ref: SessionRef, state: SessionState, at_least: int) -> SessionState:
        """The state with all inputs up to ``at_least``, and taken to be complete so far.

        The caller proves by a fence on the state's head that no other record was written.

        Raises:
            as `load`.
        """
        if at_least <= state.read_through:
            return state
        # Mostly there is one alone.
        return await self._read_on(
            SessionSubjects(ref).inputs, state, state.read_through + 1, at_least, limit=1
        )

    async def _read_on(
        self, subject: str, state: SessionState, start: int, at_least: int, limit: int | None = None
    ) -> SessionState:
        """The state with the records from ``start`` on. ``limit``: of the first answer only. Errors as `load`."""
        stale = 0
        while stale <= STALE_ATTEMPTS_MAX:
            page = await self._bus.range(
                self._committer.stream, subject, start, limit=limit or PAGE, reach=at_least
            )
            limit = None
            state = self.fold(state, page.messages)
            if page.messages:
                start = page.messages[-1].sequence + 1
            if page.more:
                continue
            if page.up_to >= at_least:
                return state.reading_through(page.up_to)
            stale += 1
        raise Unavailable(f"no server has answered up to sequence {at_least}")

    async def newest(self, ref: SessionRef) -> int:
        """What a decision on the newest state must reach: the sequence of the planner family's last record; 0: there is none.

        From an answer that has all that was written before the call. Not the stream's own last sequence: a session of a
        certain age has too many subjects for a server to say of all of them that nothing follows.

        Raises:
            Damaged: it is behind all that can be read. Unavailable.
        """
        family = SessionSubjects(ref).planner_family
        try:
            found = await newest(self._bus, self._committer.stream, [family])
        except Damaged:
            head = await head_of(self._bus, self._committer.stream, family)
            if head.damage:
                raise
            return head.sequence
        return max((stored.sequence for stored in found.values()), default=0)

    async def check_effects(self, ref: SessionRef, run: int, calls: Collection[CallId]) -> None:
        """As `heads.check_effects`."""
        await check_effects(self._bus, self._committer.stream, ref, run, calls)

    async def records(self, ref: SessionRef) -> list[Recorded]:
        """Every record of the session that its machine folds, in order: as much as the session is old.

        Raises:
            Damaged, Unavailable: as `load`.
        """
        found: list[Recorded] = []
        start = 1
        while True:
            page = await self._bus.range(
                self._committer.stream, SessionSubjects(ref).everything, start, limit=PAGE
            )
            found += [recorded for stored in page.messages if (recorded := read_session_record(stored))]
            if not page.more:
                return found
            start = page.messages[-1].sequence + 1

    async def read_anchor(self, ref: SessionRef, at_least: int = 0) -> tuple[Anchor, int]:
        """The anchor and its sequence, from an answer that reaches at least to ``at_least``.

        Raises:
            NotFound: there is no such session. Damaged. Unavailable.
        """
        for _ in range(STALE_ATTEMPTS_MAX):
            last, up_to = await self._last_anchor(ref, at_least)
            if up_to >= at_least:
                if last is None:
                    raise _no_session(ref)
                return _anchor_in(last), last.sequence
        raise Unavailable(f"no server has answered up to sequence {at_least}")

    async def _last_anchor(self, ref: SessionRef, at_least: int) -> tuple[Stored | None, int]:
        """The last anchor record, and the sequence up to which the answering server knows that it is the last."""
        stream, anchors = self._committer.stream, SessionSubjects(ref).anchors
        try:
            page = await self._bus.last(stream, [anchors])
            return max(page.messages, key=lambda each: each.sequence, default=None), page.up_to
        except Damaged:
            # The last record of one of the two registers cannot be read; the other may have a newer one.
            last = await last_anchor(self._bus, stream, ref)
            start = last.sequence + 1 if last else 1
            behind = await self._bus.range(stream, anchors, start, limit=1, reach=at_least)
            return last, 0 if behind.messages else behind.up_to

    async def read_beside(
        self, ref: SessionRef, subjects: Sequence[str], at_least: int
    ) -> tuple[Anchor, tuple[Stored, ...]]:
        """The last anchor but those by which a planner took a turn, and the last message of each of ``subjects`` that has one.

        All are from one answer. That anchor has the fence of the newest one, and is paused, quarantined or deleted whenever that
        is: a planner takes a turn only in a session that is idle or active, and does not move the fence.

        Raises:
            as `read_anchor`.
        """
        subject = SessionSubjects(ref).anchor_change
        for _ in range(STALE_ATTEMPTS_MAX):
            page = await self._bus.last(self._committer.stream, [subject, *subjects])
            if page.up_to >= at_least:
                found = {each.subject: each for each in page.messages}
                if subject not in found:
                    raise _no_session(ref)
                return _anchor_in(found.pop(subject)), tuple(found.values())
        raise Unavailable(f"no server has answered up to sequence {at_least}")

    async def append(
        self,
        ref: SessionRef,
        state: SessionState,
        events: Sequence[PlannerEvent],
        at_ms: int,
        deadline_s: float = DEADLINE_S,
        *,
        receipt: Mapping[str, Any] | None = None,
        also: Sequence[Write] = (),
        past_the_lost: bool = False,
    ) -> SessionState:
        """Record planner events, all or none, directly after the last one in ``state``; returns the state with them.

        ``receipt``: what the receipt of the order says that the (one) event carries out; it is written once, for ever.
        ``also``: other writes that stand or fall with them, each with its own fence.
        ``past_the_lost``: also after a planner record that the server cannot read.

        Raises:
            Fenced: another planner or a control was first, or the receipt was given before; load and decide again.
            Unavailable. TooLarge.
        """
        writes, digests, previous = [], [], state.head_digest
        for event in events:
            write, previous = self._write(ref, event, previous, at_ms)
            writes.append(write)
            digests.append(previous)
        family = SessionSubjects(ref).planner_family
        writes += [*self._control(ref, events, receipt, at_ms), *also]
        if past_the_lost:
            last = await commit_behind(self._committer, writes, family, state.head)
        else:
            last = await self._committer.commit(writes, Expect(family, state.head), deadline_s)
        for offset, (event, digest) in enumerate(zip(events, digests, strict=True)):
            state = apply(state, Recorded(last - len(writes) + 1 + offset, event, digest))
        return state

    def _control(
        self, ref: SessionRef, events: Sequence[PlannerEvent], receipt: Mapping[str, Any] | None, at_ms: int
    ) -> list[Write]:
        """What wakes planners for a control: the anchors of turns, several each, are mostly their own."""
        controls = [each for each in events if isinstance(each, AnchorChanged) and each.kind in CONTROLS]
        if not controls:
            return []
        body = {**(receipt or {}), "kinds": [each.kind for each in controls]}
        payload, _ = encode(Record(Kind.CONTROL, at_ms, self._writer, body))
        if receipt is None:
            return [Write(SessionSubjects(ref).control(), payload)]
        subject = SessionSubjects(ref).control(controls[0].control_id)
        return [Write(subject, payload, Expect(subject, 0))]

    def _write(self, ref: SessionRef, event: PlannerEvent, previous: str, at_ms: int) -> tuple[Write, str]:
        subjects = SessionSubjects(ref)
        kind, body = event_body(event)
        record = Record(kind, at_ms, self._writer, body, previous)
        if isinstance(event, AnchorChanged):
            payload, digest = encode_anchor(event.anchor, record)
            return Write(subjects.anchor(event.kind), payload), digest
        payload, digest = encode(record)
        subject = subjects.command(event.pool) if isinstance(event, CommandDecided) else subjects.log
        return Write(subject, payload), digest

    async def snapshot(self, ref: SessionRef, state: SessionState, at_ms: int) -> SessionState:
        """Record the folded state, so that loading starts there. Errors as `append`."""
        return await self.append(ref, state, [SnapshotTaken(state)], at_ms)

    async def _last_snapshot(self, ref: SessionRef) -> SessionState:
        page = await self._bus.last(self._committer.stream, [SessionSubjects(ref).log])
        event = self._log_event(page.messages)
        if isinstance(event, (StepDecided, Compacted, ModelRequested)) and event.snapshot_sequence:
            subject = SessionSubjects(ref).log
            page = await self._bus.range(self._committer.stream, subject, event.snapshot_sequence, limit=1)
            event = self._log_event(page.messages)
        return event.state if isinstance(event, SnapshotTaken) else SessionState()

    def _log_event(self, messages: Sequence[Stored]) -> Event | None:
        recorded = read_session_record(messages[0]) if messages else None
        return recorded.event if recorded else None

    def fold(self, state: SessionState, messages: Sequence[Stored]) -> SessionState:
        """The state with what these messages of its session say. It is not more complete by that.

        Raises:
            Damaged: as `load`.
        """
        records = []
        head, digest = state.head, state.head_digest
        for stored in messages:
            if ".p." in stored.subject and stored.sequence <= state.head:
                # It was folded, and checked, when it was read or written.
                continue
            if stored.sequence in state.passed_over:
                continue
            recorded = read_session_record(stored)
            if recorded is None:
                continue
            if ".p." in stored.subject and stored.sequence > head:
                _check_chain(recorded, head, digest)
                head, digest = stored.sequence, recorded.digest
            records.append(recorded)
        return replay(state, records)


def _no_session(ref: SessionRef) -> NotFound:
    return NotFound(f"there is no session {ref.session}", hint="`anchorwatch sessions` lists them")


def _anchor_in(stored: Stored) -> Anchor:
    try:
        return decode_anchor(stored.payload)[0]
    except Damaged as error:
        raise type(error)(
            f"sequence {stored.sequence} (p.anchor): {error.message}",
            hint=error.hint,
            sequence=stored.sequence,
            register="p.anchor",
        ) from None


def _check_chain(recorded: Recorded, head: int, digest: str) -> None:
    if recorded.previous != digest:
        raise Damaged(
            f"sequence {recorded.sequence}: it does not follow the planner record at {head}; one is missing or was altered",
            hint="`anchorwatch journal verify`",
            sequence=recorded.sequence,
            register="p",
        )
