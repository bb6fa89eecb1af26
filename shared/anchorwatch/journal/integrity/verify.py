"""Examines a session in the journal, without a write."""

from __future__ import annotations

from anchorwatch.bus.port import Bus
from anchorwatch.core.errors import Damaged, NotFound, Unavailable
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.heads import readable
from anchorwatch.journal.integrity.examine import Examiner
from anchorwatch.journal.integrity.losses import losses
from anchorwatch.journal.integrity.report import Examination
from anchorwatch.journal.reading import STALE_ATTEMPTS_MAX
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.topology.subjects import SessionSubjects

PAGE = 512


async def verify(bus: Bus, stream: str, sessions: SessionJournal, ref: SessionRef) -> Examination:
    """Examine each record of the session up to `Examination.through`, which includes the last planner record before the call.

    Raises:
        NotFound: the session has no record. Unavailable: no server answered up to that record.
    """
    examiner = Examiner(ref)
    # Before the records are read: registers only grow.
    counted = await bus.counts(stream, SessionSubjects(ref).everything)
    try:
        through, unreadable = await _read(bus, stream, examiner, await sessions.newest(ref)), ""
    except Damaged as error:
        through, unreadable = await _read_what_can_be(bus, stream, examiner), error.message
    if not examiner.records:
        raise NotFound(f"there is no session {ref.session}", hint="`anchorwatch sessions` lists them")
    read = examiner.subjects
    short = {subject: count - read[subject] for subject, count in counted.items() if count > read[subject]}
    lost = (await losses(bus, stream, read_all=bool(short))).of(ref, examiner.first)
    examiner.miss(lost, short)
    if unreadable and not any(last > examiner.last for _, last in lost):
        examiner.miss_last(unreadable)
    if unreadable:
        return Examination(examiner, through, unloadable=unreadable)
    try:
        await sessions.load(ref, examiner.last)
    except Damaged as error:
        return Examination(examiner, through, unloadable=error.message)
    return Examination(examiner, through)


async def _read_what_can_be(bus: Bus, stream: str, examiner: Examiner) -> int:
    """As `_read`, for a session whose last record the server cannot read; up to the stream's last sequence."""
    end = (await bus.stream_state(stream)).last_sequence
    subject = SessionSubjects(examiner.ref).everything
    async for stored in readable(bus, stream, subject, examiner.last + 1, reach=0):
        examiner.take(stored)
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
    raise Unavailable(f"no server answered up to sequence {newest}")
