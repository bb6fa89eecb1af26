"""Examine a session in the journal. It reads, and writes nothing."""

from __future__ import annotations

import contextlib

from anchorwatch.bus.port import Bus
from anchorwatch.core.errors import Damaged, NotFound, Unavailable
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.integrity.examine import Examiner
from anchorwatch.journal.integrity.report import Examination
from anchorwatch.journal.reading import STALE_ATTEMPTS_MAX
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.topology.subjects import SessionSubjects

PAGE = 512


async def verify(bus: Bus, stream: str, sessions: SessionJournal, ref: SessionRef) -> Examination:
    """Every record of the session up to `Examination.through`: the planner's last at the time of the call, or beyond.

    Raises:
        NotFound: there is no record of such a session. Unavailable: no answer reached so far.
    """
    examiner = Examiner(ref)
    # Before anything is read: registers only grow.
    counted = await bus.counts(stream, SessionSubjects(ref).everything)
    try:
        through, unreadable = await _read(bus, stream, examiner, await sessions.newest(ref)), ""
    except Damaged as error:
        through, unreadable = await _read_what_can_be(bus, stream, examiner), error.message
    if not examiner.records:
        raise NotFound(f"there is no session {ref.session}", hint="`anchorwatch sessions` lists them")
    read = examiner.subjects
    is_short = any(read[subject] < count for subject, count in counted.items())
    holes = await (_unread(bus, stream) if is_short else bus.holes(stream))
    examiner.miss(holes)
    if unreadable and not any(last > examiner.last for _, last in holes):
        examiner.miss_last(unreadable)
    try:
        await sessions.load(ref, examiner.last)
    except Damaged as error:
        return Examination(examiner, through, unloadable=error.message)
    return Examination(examiner, through)


async def _unread(bus: Bus, stream: str) -> list[tuple[int, int]]:
    """The sequences that nobody can read, whatever the server says of them: by reading all that there is."""
    end, at, holes = (await bus.stream_state(stream)).last_sequence, 0, list[tuple[int, int]]()
    limit = PAGE
    while at < end:
        try:
            page = await bus.range(stream, ">", at + 1, limit=limit, reach=end)
        except Damaged:
            # What is last here cannot be read: shorter and shorter pages end before it.
            if limit == 1:
                break
            limit //= 2
            continue
        for stored in page.messages:
            holes += [(at + 1, stored.sequence - 1)] if stored.sequence > at + 1 else []
            at = stored.sequence
        if not page.more:
            break
    return [*holes, (at + 1, end)] if at < end else holes


async def _read_what_can_be(bus: Bus, stream: str, examiner: Examiner) -> int:
    """As `_read`, one by one, where the server cannot read what is last; through the stream's last sequence."""
    end, subject = (await bus.stream_state(stream)).last_sequence, SessionSubjects(examiner.ref).everything
    with contextlib.suppress(Damaged):
        while True:
            page = await bus.range(stream, subject, examiner.last + 1, limit=1, reach=0)
            if not page.messages:
                break
            examiner.take(page.messages[0])
    return end


async def _read(bus: Bus, stream: str, examiner: Examiner, newest: int) -> int:
    subject, start = SessionSubjects(examiner.ref).everything, 1
    for _ in range(STALE_ATTEMPTS_MAX):
        while True:
            page = await bus.range(stream, subject, start, limit=PAGE, reach=newest)
            for stored in page.messages:
                examiner.take(stored)
                start = stored.sequence + 1
            if not page.more:
                break
        if page.up_to >= newest:
            return page.up_to
    raise Unavailable(f"no server has answered up to sequence {newest}")
