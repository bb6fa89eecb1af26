"""The account of a limit that all sessions of an agent share: a register of the workspace, written with each turn's beginning.

It is in the atomic write that starts the turn, fenced on itself: of two sessions that would spend the same turn one is
refused, and looks again. So no number of planners begins more turns than the limit.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from anchorwatch.bus.port import Bus, Expect
from anchorwatch.codec import decode, encode
from anchorwatch.core.anchor import Pace
from anchorwatch.core.errors import Damaged
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.session.pacing import Hold, Rate
from anchorwatch.journal.commit import Write
from anchorwatch.topology.subjects import PACE


@dataclass(frozen=True, slots=True)
class Account:
    """The account as of ``sequence`` (0: no turn was counted yet), and the limit that it is of."""

    subject: str
    rate: Rate
    pace: Pace | None
    sequence: int

    def hold(self, now_ms: int) -> Hold | None:
        """What holds all sessions of the agent."""
        return self.rate.hold_of(self.pace, now_ms)


class PaceJournal:
    """Reads accounts, and makes the writes that carry them on. ``writer`` names the process in the records."""

    def __init__(self, bus: Bus, stream: str, writer: str) -> None:
        self._bus = bus
        self._stream = stream
        self._writer = writer

    async def read(self, ref: SessionRef, agent: str, rate: Rate) -> Account:
        """The account of the agent of a session. It may be a moment old: the fence tells.

        Raises:
            Unavailable.
        """
        subject = PACE.at(workspace=ref.workspace, agent=agent)
        page = await self._bus.last(self._stream, [subject])
        if not page.messages:
            return Account(subject, rate, None, 0)
        stored = page.messages[0]
        try:
            pace = Pace(**decode(stored.payload).body["pace"])
        except (Damaged, KeyError, TypeError, ValueError):
            # Whatever it held, at most the whole bucket was spent; the next turn's record replaces it.
            pace = rate.spent_at(stored.time_ms)
        return Account(subject, rate, pace, stored.sequence)

    def spend(self, account: Account, ref: SessionRef, now_ms: int) -> Write:
        """The write that counts a turn starting now; it is stored together with the turn's record or not at all."""
        pace = account.rate.begun_after(account.pace, now_ms)
        body = {"pace": asdict(pace) if pace else {}, "session": ref.session}
        payload, _ = encode(Record(Kind.PACE, now_ms, self._writer, body))
        return Write(account.subject, payload, Expect(account.subject, account.sequence))
