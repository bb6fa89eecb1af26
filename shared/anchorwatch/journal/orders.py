"""Carries out people's orders: each once, whatever is killed and however often it is repeated.

The change of the anchor and the receipt of the order (``ctl.<control_id>``, written once) are one atomic write: either both
are stored or neither. So a repeated request finds the receipt and the change directly before it, or nothing was done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from anchorwatch.bus.port import Bus, Expect, Stored
from anchorwatch.codec import decode, encode
from anchorwatch.core.errors import (
    Damaged,
    Fenced,
    IdempotencyConflict,
    NewerSchema,
    SessionQuarantined,
    Unavailable,
)
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Order
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.events import AnchorChanged
from anchorwatch.journal.commit import DEADLINE_S, Committer, Write
from anchorwatch.journal.lanes import Lanes
from anchorwatch.journal.mapping import input_body, read_session_record
from anchorwatch.journal.reading import STALE_ATTEMPTS_MAX, newest
from anchorwatch.journal.register import REFUSALS, Register
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.topology.subjects import SessionSubjects

CANARY = "canary"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request. ``control_id`` follows from its idempotency key; ``body_sha256`` is what the receipt is bound to."""

    control_id: str
    by: str
    body_sha256: str


@dataclass(frozen=True, slots=True)
class Done:
    """An order that was carried out by the anchor record at ``sequence``. ``replayed``: it had been before.

    ``state`` is the session with it; None where it was replayed.
    """

    sequence: int
    change: AnchorChanged
    replayed: bool
    state: SessionState | None = None


class OrderJournal:
    """Carries out orders, and finds those that were."""

    def __init__(self, bus: Bus, committer: Committer, sessions: SessionJournal) -> None:
        self._bus = bus
        self._committer = committer
        self._sessions = sessions
        self._lanes = Lanes()

    async def carry_out(
        self,
        ref: SessionRef,
        asked: Asked,
        order: Callable[[SessionState], Order],
        *,
        also: Callable[[AnchorChanged], Sequence[Write]] = lambda _: (),
        deadline_s: float = DEADLINE_S,
    ) -> Done:
        """Carry out ``order`` on the current session; after another write, on the session after it.

        ``also``: what is to stand or fall with the change.

        Raises:
            Refused, NotFound and the others of `decide`: nothing was done. IdempotencyConflict: the key was used for
            another request. Unavailable: not known; asking again is safe.
        """
        async with self._lanes.turn(ref, deadline_s):
            return await self._carry_out(ref, asked, order, also, deadline_s)

    async def _carry_out(
        self,
        ref: SessionRef,
        asked: Asked,
        order: Callable[[SessionState], Order],
        also: Callable[[AnchorChanged], Sequence[Write]],
        deadline_s: float,
    ) -> Done:
        newest_head = 0

        async def load() -> Done | SessionState:
            return await self.find(ref, asked) or await self._load(ref, newest_head)

        def change_of(found: Done | SessionState) -> AnchorChanged | None:
            return None if isinstance(found, Done) else _only(decide(found, order(found)))

        async def write(found: Done | SessionState, change: AnchorChanged) -> Done | SessionState:
            assert isinstance(found, SessionState)  # noqa: S101 - of what was done before there is no change
            nonlocal newest_head
            receipt = {"by": asked.by, "body_sha256": asked.body_sha256}
            try:
                state = await self._sessions.append(
                    ref, found, [change], change.at_ms, deadline_s, receipt=receipt, also=also(change)
                )
            except Fenced:
                newest_head = await self._sessions.newest(ref)
                raise
            return Done(state.head, change, replayed=False, state=state)

        async def is_newest(found: Done | SessionState) -> bool:
            nonlocal newest_head
            newest_head = await self._sessions.newest(ref)
            return isinstance(found, Done) or found.read_through >= newest_head

        register = Register(f"the session {ref.session}", load, write, is_newest)
        try:
            done = await register.change(change_of)
        except REFUSALS:
            # What refuses it may be this very request, sent twice at once, and carried out since it was looked for.
            if (found := await self._find_newest(ref, asked)) is None:
                raise
            done = found
        assert isinstance(done, Done)  # noqa: S101 - an order always changes the anchor
        return done

    async def _load(self, ref: SessionRef, at_least: int) -> SessionState:
        try:
            return await self._sessions.load(ref, at_least)
        except NewerSchema:
            raise
        except Damaged as damage:
            # Its planner says so in the anchor, as soon as it looks; nothing is ordered of it until it is repaired.
            raise SessionQuarantined(
                f"the session {ref.session} is damaged: {damage.message}",
                hint=f"`anchorwatch journal verify {ref.session}` shows it, `anchorwatch repair {ref.session}` repairs it",
            ) from None

    async def find(self, ref: SessionRef, asked: Asked) -> Done | None:
        """What was done for the same request before, as far as the answering server knows.

        Raises:
            IdempotencyConflict: it was another request. Damaged. Unavailable.
        """
        page = await self._bus.last(self._committer.stream, [_receipt_of(ref, asked)])
        return await self._told(ref, asked, page.messages[0]) if page.messages else None

    async def _find_newest(self, ref: SessionRef, asked: Asked) -> Done | None:
        """As `find`, as far as any server knows."""
        subject = _receipt_of(ref, asked)
        found = await newest(self._bus, self._committer.stream, [subject])
        return await self._told(ref, asked, found[subject]) if found else None

    async def _told(self, ref: SessionRef, asked: Asked, stored: Stored) -> Done:
        first: str = decode(stored.payload).body["body_sha256"]
        if first != asked.body_sha256:
            raise IdempotencyConflict(
                "the key was used before with another request",
                hint="use a new key for a new request",
                first_body_sha256=first,
            )
        return await self._before(SessionSubjects(ref).anchor_change, stored)

    async def _before(self, anchor: str, receipt: Stored) -> Done:
        for _ in range(STALE_ATTEMPTS_MAX):
            page = await self._bus.range(self._committer.stream, anchor, receipt.sequence - 1, limit=1)
            if page.messages and page.messages[0].sequence == receipt.sequence - 1:
                recorded = read_session_record(page.messages[0])
                if recorded is not None and isinstance(recorded.event, AnchorChanged):
                    return Done(recorded.sequence, recorded.event, replayed=True)
            if page.up_to >= receipt.sequence:
                raise Damaged(f"sequence {receipt.sequence}: no anchor precedes this receipt")
        raise Unavailable(f"no server has answered up to sequence {receipt.sequence}")


def canary(ref: SessionRef, change: AnchorChanged, writer: str) -> Sequence[Write]:
    """The input that has a turn run behind a reset: it is to stand or fall with it. Behind other changes, none."""
    if change.kind != Kind.RESET:
        return ()
    body = input_body(CANARY, 0, by=change.by)
    payload, _ = encode(Record(Kind.INPUT, change.at_ms, writer, body))
    subject = SessionSubjects(ref).input(canary_id(change))
    return (Write(subject, payload, Expect(subject, 0)),)


def canary_id(change: AnchorChanged) -> str:
    """The id of the input behind a reset."""
    return f"{CANARY}-{change.anchor.reset_count}"


def _receipt_of(ref: SessionRef, asked: Asked) -> str:
    return SessionSubjects(ref).control(asked.control_id)


def _only(events: Sequence[Any]) -> AnchorChanged:
    (event,) = events
    assert isinstance(event, AnchorChanged)  # noqa: S101 - what every order makes
    return event
