"""A journal that is shorter than it was: proof of it, the hold of the whole mesh, and the gap that takes the lost sequences.

A server that was killed cuts a damaged block off, says nothing, and stores the next records under the sequences that it lost.
A witness (the supervisor's copy of the files, the memory service, a service that was connected before) knows a higher end. It
fills the stream up to that end, puts the hold directly after it in the same atomic write, and removes the filling: the lost
sequences are a gap then, as any other, and are never used again. The hold is a kill switch of the mesh. One order alone turns
it off, the acceptance of the gaps that it lists.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from anchorwatch.bus.port import BatchRefused, Bus, Message, Stored, WrongLastSequence
from anchorwatch.codec import canonical_json, decode, encode, sha256_hex
from anchorwatch.core.errors import Damaged, Unavailable
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.topology.subjects import FILLER, MESH_HOLD, Register, parse_register

RACES_MAX = 20
BATCH_MAX = 1_000
"""The server takes no more messages in one atomic write."""
LISTED_BYTES_MAX = 96 * 1024
"""Of the subjects of one gap: a hold is one record."""
WITNESS = "a service that was connected before"
HELD = "the journal lost its end"


@dataclass(frozen=True, slots=True)
class LostRecord:
    """What a witness knows of a record. ``command``: what it acts on, of one that decides a command or records its effect."""

    sequence: int
    subject: str
    command: Mapping[str, str] = field(default_factory=dict)

    @property
    def register(self) -> Register:
        return parse_register(self.subject)

    def to_json(self) -> list[Any]:
        """As the hold's record has it."""
        return [self.sequence, self.subject, dict(self.command)]


@dataclass(frozen=True, slots=True)
class Proof:
    """The journal reached to ``end``, says ``found_by``. ``records``: those that it knows of, in order.

    ``open_end``: it may have reached further. ``replaced``: another record has the sequence ``end`` now.
    """

    end: int
    found_by: str
    records: Sequence[LostRecord] = ()
    open_end: bool = False
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """Sequences that the journal lost at its end. ``records``: what was there, as far as a witness knows.

    ``unlisted``: the number of sequences of which nothing is known. ``open_end``: no witness knows the end, only that it was not
    lower. Once it is accepted, one record of each session is kept.
    """

    first: int
    through: int
    found_by: str
    at_ms: int
    records: tuple[LostRecord, ...] = ()
    unlisted: int = 0
    open_end: bool = False

    @property
    def brief(self) -> Gap:
        """With one record of each session."""
        firsts = {each.register.ref: each for each in reversed(self.records)}
        return replace(self, records=tuple(sorted(firsts.values(), key=lambda each: each.sequence)))

    def of_session(self, ref: SessionRef) -> list[LostRecord]:
        """The known records of one session."""
        return [each for each in self.records if each.register.ref == ref]

    def to_json(self) -> dict[str, Any]:
        """As the hold's record and programs have it."""
        return {
            "first": self.first,
            "through": self.through,
            "found_by": self.found_by,
            "at_ms": self.at_ms,
            "unlisted": self.unlisted,
            "open_end": self.open_end,
            "records": [each.to_json() for each in self.records],
        }


@dataclass(frozen=True, slots=True)
class Hold:
    """The hold of the mesh as its last record says. ``sequence`` 0: the mesh was never held.

    ``gaps``: those to accept, or, once it is over, those that were; ``before``: those that were accepted earlier.
    """

    on: bool = False
    gaps: tuple[Gap, ...] = ()
    before: tuple[Gap, ...] = ()
    by: str = ""
    note: str = ""
    at_ms: int = 0
    sequence: int = 0

    @property
    def digest(self) -> str:
        """What a person confirms: these gaps, and no others."""
        return sha256_hex(canonical_json([each.to_json() for each in self.gaps]))


def read_hold(stored: Stored) -> Hold:
    """The hold in a message of its register.

    Raises:
        Damaged: it cannot be trusted.
    """
    record = decode(stored.payload)
    try:
        body = record.body
        return Hold(
            bool(body["on"]),
            _gaps(body["gaps"]),
            _gaps(body["before"]),
            str(body["by"]),
            str(body["note"]),
            record.at_ms,
            stored.sequence,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"sequence {stored.sequence}: a field is missing or odd: {error!r}") from None


def hold_record(hold: Hold, writer: str, control_id: str = "") -> bytes:
    """The bytes of its record; what every kill switch has is there too."""
    body = {
        "on": hold.on,
        "by": hold.by,
        "reason": HELD if hold.on else hold.note,
        "note": hold.note,
        "gaps": [each.to_json() for each in hold.gaps],
        "before": [each.to_json() for each in hold.before],
        **({"control": control_id} if control_id else {}),
    }
    return encode(Record(Kind.SWITCH, hold.at_ms, writer, body))[0]


async def standing_hold(bus: Bus, stream: str) -> Hold:
    """The hold as it is now.

    Raises:
        Unavailable. Damaged: its record cannot be read.
    """
    page = await bus.last(stream, [MESH_HOLD])
    return read_hold(page.messages[0]) if page.messages else Hold()


async def hold_mesh(bus: Bus, stream: str, proof: Proof, writer: str) -> Gap | None:
    """Hold the mesh where the journal ends below ``proof.end``; the gap. None: it reaches so far, and nothing was done.

    Where other records have the lost sequences already, they keep them, and the gap is only named.

    Several witnesses may find the same loss at once: the first makes the gap, the others find it made.

    Raises:
        Unavailable: it is not known to be held; calling again is safe. Damaged: the hold's own register cannot be read.
    """
    for _ in range(RACES_MAX):
        known = await known_end(bus, stream)
        end = max(proof.end, known)
        last = (await bus.stream_state(stream)).last_sequence
        if last >= end and not proof.replaced:
            await remove_filling(bus, stream)
            return None
        first = min(last + 1, end)
        records = _listed(each for each in proof.records if first <= each.sequence <= end)
        unlisted = end + 1 - first - len(records)
        open_end, at_ms = proof.open_end or proof.replaced, await bus.server_time_ms()
        gap = Gap(first, end, proof.found_by, at_ms, tuple(records), unlisted, open_end)
        hold = _held(await _standing(bus, stream), gap)
        try:
            # Records that a server knows that it cannot read count in this fence, and no longer in its state.
            await _fill(bus, last, max(last, known), end, hold_record(hold, writer))
        except (WrongLastSequence, BatchRefused):
            continue
        await remove_filling(bus, stream)
        return gap
    raise Unavailable("the hold of the mesh is being written by others")


async def check_end(bus: Bus, stream: str) -> Gap | None:
    """Hold the mesh where the journal ends below what this bus was shown of it before. Else as `hold_mesh`, at one question."""
    end = bus.reached(stream)
    if (await bus.stream_state(stream)).last_sequence >= end:
        return None
    return await hold_mesh(bus, stream, Proof(end, WITNESS), WITNESS)


async def known_end(bus: Bus, stream: str) -> int:
    """The highest sequence that the server itself knows that it lost; 0: it knows of none."""
    return max((last for _, last in await bus.holes(stream)), default=0)


async def remove_filling(bus: Bus, stream: str) -> None:
    """Leave a gap where a filling is. A witness that died in between may have left one."""
    if await bus.counts(stream, FILLER):
        await bus.purge(stream, FILLER)


async def _standing(bus: Bus, stream: str) -> Hold:
    """The hold as it is; none where the server cannot read its record."""
    try:
        return await standing_hold(bus, stream)
    except Damaged:
        return Hold()


def _held(before: Hold, gap: Gap) -> Hold:
    """With a further gap: those that nobody has accepted yet stay to be accepted."""
    over = () if before.on else tuple(each.brief for each in before.gaps)
    waiting = before.gaps if before.on else ()
    return Hold(
        on=True, gaps=(*waiting, gap), before=(*before.before, *over), by=gap.found_by, at_ms=gap.at_ms
    )


async def _fill(bus: Bus, last: int, fence: int, end: int, hold: bytes) -> None:
    """Store messages after ``last`` up to ``end``, and directly after them the hold, if the server compares ``fence``.

    A server that answers with what is no longer so, as a former leader may, makes no gap.
    """
    while (count := end - last) >= BATCH_MAX:
        # One less than fits, so that the hold never comes alone: whoever dies before it leaves an end that is still too low.
        fence = last = (await bus.publish_batch(_filling(BATCH_MAX - 1, fence))).sequence
    if count > 0:
        await bus.publish_batch([*_filling(count, fence), Message(MESH_HOLD, hold)])
    else:
        await bus.publish(Message(MESH_HOLD, hold, expect_last=fence))


def _filling(count: int, fence: int) -> list[Message]:
    return [Message(FILLER, b"", expect_last=None if n else fence) for n in range(count)]


def _listed(records: Iterable[LostRecord]) -> list[LostRecord]:
    """As many as a record can hold, in order."""
    found, size = list[LostRecord](), 0
    for each in records:
        size += len(json.dumps(each.to_json()))
        if size > LISTED_BYTES_MAX:
            break
        found.append(each)
    return found


def _gaps(rows: Iterable[Mapping[str, Any]]) -> tuple[Gap, ...]:
    return tuple(
        Gap(
            each["first"],
            each["through"],
            each["found_by"],
            each["at_ms"],
            _rows(each["records"]),
            each["unlisted"],
            each["open_end"],
        )
        for each in rows
    )


def _rows(rows: Iterable[Sequence[Any]]) -> tuple[LostRecord, ...]:
    return tuple(
        LostRecord(int(sequence), str(subject), dict(command)) for sequence, subject, command in rows
    )
