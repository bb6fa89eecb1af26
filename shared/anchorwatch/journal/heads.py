"""The last record of a family, where the server's disk may have damaged it: what can be read, and what a fence must say.

Of a family whose last record the server cannot read, the server compares 0, as if there were none: a fence of 0 holds until
a record follows that one, and no other fence does.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass

from anchorwatch.bus.port import Bus, Expect, Stored
from anchorwatch.core.errors import Damaged, TooLarge
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.journal.commit import Committer, Write
from anchorwatch.topology.subjects import EFFECT, SessionSubjects, parse_register

PAGE = 512


@dataclass(frozen=True, slots=True)
class Head:
    """The last readable record of a family. ``damage``: why the record after it is unreadable; None: there is none."""

    stored: Stored | None
    damage: Damaged | None = None

    @property
    def sequence(self) -> int:
        return self.stored.sequence if self.stored else 0


async def head_of(bus: Bus, stream: str, family: str) -> Head:
    """The head of all that matches ``family``.

    Raises:
        Unavailable.
    """
    try:
        return Head(_newest((await bus.last(stream, [family])).messages))
    except Damaged:
        return await _past_the_lost(bus, stream, family)


async def last_anchor(bus: Bus, stream: str, ref: SessionRef) -> Stored | None:
    """The last anchor record of a session; None: there is no such session.

    Raises:
        Damaged: the server cannot read it. Unavailable.
    """
    head = await head_of(bus, stream, SessionSubjects(ref).anchors)
    if head.damage:
        raise head.damage
    return head.stored


async def _past_the_lost(bus: Bus, stream: str, family: str) -> Head:
    """As `head_of`, of a family that has a subject whose last record cannot be read: it need not be the family's."""
    lasts = list[Stored]()
    for subject in await bus.counts(stream, family):
        try:
            lasts += (await bus.last(stream, [subject])).messages
        except Damaged:
            continue
    head = _newest(lasts)
    while True:
        try:
            page = await bus.range(stream, family, head.sequence + 1 if head else 1, limit=1)
        except Damaged as damage:
            return Head(head, damage)
        if not page.messages:
            return Head(head)
        head = page.messages[0]


async def readable(
    bus: Bus, stream: str, filter_: str, start: int = 1, *, reach: int | None = None
) -> AsyncIterator[Stored]:
    """Every message that matches from ``start`` on and that the server can read, in order, whatever is last there.

    Raises:
        Unavailable.
    """
    limit = PAGE
    while True:
        try:
            page = await bus.range(stream, filter_, start, limit=limit, reach=reach)
        except Damaged:
            # What is last cannot be read: shorter and shorter pages end before it.
            if limit == 1:
                return
            limit //= 2
            continue
        for stored in page.messages:
            yield stored
            start = stored.sequence + 1
        if not page.more:
            return


async def unread(bus: Bus, stream: str, start: int = 1) -> list[tuple[int, int]]:
    """The unreadable sequences from ``start`` on, found by reading every message, whatever the server reports."""
    end, at, holes = (await bus.stream_state(stream)).last_sequence, start - 1, list[tuple[int, int]]()
    async for stored in readable(bus, stream, ">", start, reach=end):
        if stored.sequence > end:
            break
        holes += [(at + 1, stored.sequence - 1)] if stored.sequence > at + 1 else []
        at = stored.sequence
    return [*holes, (at + 1, end)] if at < end else holes


async def check_effects(bus: Bus, stream: str, ref: SessionRef, run: int, calls: Collection[CallId]) -> None:
    """See that what is recorded of a run's effects can be read, and is of ``calls``, the commands that it decided.

    Raises:
        Damaged: it cannot, or is of a command that the journal does not hold. Unavailable.
    """
    filter_ = EFFECT.filter(workspace=ref.workspace, session=ref.session, run=run)
    with contextlib.suppress(TooLarge):
        for stored in (await bus.last(stream, [filter_])).messages:
            register = parse_register(stored.subject)
            if register.call not in calls:
                raise Damaged(
                    f"sequence {stored.sequence} ({register.kind}): the command {register.call} that it is of is gone",
                    hint="`anchorwatch journal verify`",
                    sequence=stored.sequence,
                    register=register.kind,
                )


async def commit_behind(committer: Committer, writes: Sequence[Write], family: str, head: int) -> int:
    """Commit directly behind ``head``, the family's last record that can be read, whether or not one follows that cannot.

    Raises:
        Fenced: a readable record follows it. Unavailable.
    """
    try:
        return await committer.commit(writes, Expect(family, head))
    except Damaged:
        return await committer.commit(writes, Expect(family, 0), behind=head)


def _newest(found: Sequence[Stored]) -> Stored | None:
    return max(found, key=lambda stored: stored.sequence, default=None)
