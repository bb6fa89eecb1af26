"""Dead letters in their stream: one register for each, which holds its last record alone.

Every writer knows the previous record (`LetterJournal.write` is fenced on the register), so of a service that sees another
failure and a person who gives an order one is first, and the other looks again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from anchorwatch.bus.port import Bus, Expect, Stored
from anchorwatch.codec import encode, write_body
from anchorwatch.core.errors import Damaged, NotFound
from anchorwatch.core.letters import Address, DeadLetter, LetterState
from anchorwatch.core.records import Kind, Record
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.commit import Committer, Write
from anchorwatch.journal.reading import newest, read
from anchorwatch.journal.register import Register
from anchorwatch.topology.streams import DEAD
from anchorwatch.topology.subjects import DEAD_LETTER

SUSPECTED_TTL_S = 24 * 3600
DONE_TTL_S = 30 * 24 * 3600
_TTL_S: Mapping[LetterState, int] = {"suspected": SUSPECTED_TTL_S, "done": DONE_TTL_S}


@dataclass(frozen=True, slots=True)
class Filed:
    """A stored letter: ``head`` is its record's sequence in the stream (0: none). ``fresh``: just written here."""

    letter: DeadLetter | None = None
    head: int = 0
    fresh: bool = False


_EDGES = {
    "observer": (Edge.OBSERVER_LETTER_BEFORE, Edge.OBSERVER_LETTER_AFTER),
    "planner": (Edge.PLANNER_LETTER_BEFORE, Edge.PLANNER_LETTER_AFTER),
    "executor": (Edge.EXECUTOR_LETTER_BEFORE, Edge.EXECUTOR_LETTER_AFTER),
    "notifier": (Edge.NOTIFIER_LETTER_BEFORE, Edge.NOTIFIER_LETTER_AFTER),
    "gateway": (Edge.GATEWAY_LETTER_BEFORE, Edge.GATEWAY_LETTER_AFTER),
}
"""Around the write of a letter, by who writes it. Memory has none: only a fault of its own code has it write one."""


class LetterJournal:
    """Reads and writes letters. ``writer`` names the process in the records.

    ``by``: the part of the code that acts, where it is not the one whose letters they are.
    """

    def __init__(self, bus: Bus, writer: str, by: str = "") -> None:
        self._bus = bus
        self._by = by
        self._committer = Committer(bus, DEAD)
        self._writer = writer

    async def load(self, workspace: str, service: str, id_: str) -> Filed:
        """The current letter: an order that it does not allow is refused, and no write would reveal a stale answer.

        An unreadable record counts as none: the next failure writes the letter again.

        Raises:
            Unavailable.
        """
        subject = DEAD_LETTER.at(workspace=workspace, service=service, id=id_)
        stored = (await newest(self._bus, DEAD, [subject])).get(subject)
        if stored is None:
            return Filed()
        try:
            return read_letter(stored)
        except Damaged:
            return Filed(head=stored.sequence)

    async def write(self, letter: DeadLetter, head: int, at_ms: int) -> Filed:
        """Write directly behind the record at ``head``.

        Raises:
            Fenced: another writer was first. Unavailable: not confirmed in time.
        """
        address = letter.address
        subject = DEAD_LETTER.at(workspace=address.workspace, service=address.service, id=address.id)
        payload, _ = encode(Record(Kind.DEAD_LETTER, at_ms, self._writer, write_body(letter)))
        write = Write(subject, payload, ttl_s=_TTL_S.get(letter.state))
        before, after = _EDGES.get(self._by or address.service, (None, None))
        if before is not None:
            reached(before)
        sequence = await self._committer.commit([write], Expect(subject, head))
        if after is not None:
            reached(after)
        return Filed(letter, sequence, fresh=True)

    async def change(
        self, address: Address, change: Callable[[DeadLetter | None], DeadLetter | None], at_ms: int
    ) -> Filed:
        """Replace the letter by ``change`` of it (None: nothing to write); returns the current letter.

        Raises:
            Unavailable, and whatever ``change`` raises.
        """

        async def load() -> Filed:
            return await self.load(address.workspace, address.service, address.id)

        async def write(filed: Filed, letter: DeadLetter) -> Filed:
            return await self.write(letter, filed.head, at_ms)

        register = Register(f"letter {address.letter_id}", load, write)
        return await register.change(lambda filed: change(filed.letter))


def read_letter(stored: Stored) -> Filed:
    """The letter in a message of the stream.

    Raises:
        Damaged: it cannot be trusted.
    """
    _, letter = read(stored, DeadLetter)
    address = letter.address
    named = {"workspace": address.workspace, "service": address.service, "id": address.id}
    if named != DEAD_LETTER.parse(stored.subject):
        raise Damaged(f"the dead letter at {stored.sequence} is of another register")
    return Filed(letter, stored.sequence)


async def find_message(bus: Bus, address: Address) -> Stored:
    """The message of a letter, if it is still stored; for a letter that was to be notified, its current record.

    Raises:
        NotFound: its stream has it no more. Unavailable.
    """
    # A publisher's subject may hold bytes that are not text, and then no filter matches it.
    filter_ = address.subject if address.stream == DEAD else ">"
    page = await bus.range(address.stream, filter_, address.sequence, limit=1, reach=address.sequence)
    found = page.messages[0] if page.messages else None
    if found is not None and address.stream == DEAD:
        # A letter's record replaces the one before, and there is nothing to tell of that any more.
        return found
    # A recreated stream counts from 1 again, and holds another message there.
    if found is None or (found.sequence, found.time_ms) != (address.sequence, address.time_ms):
        raise NotFound(
            f"the message of letter {address.letter_id} is no longer in {address.stream}",
            hint=f"`anchorwatch dead-letters drop {address.letter_id}` closes the letter",
        )
    return found
