"""A journal that lost its end: the proof, the hold of the mesh, and the gap in place of the lost sequences (INV-917, ADR 16).

A server that was killed cuts a damaged block off silently, and stores the next records under the lost sequences. A witness (the
supervisor's copy of the files, the memory service, a connected service) knows a higher end. It fills the stream up to that end,
writes the hold after it in the same atomic write, and removes the filling: the lost sequences are then an ordinary gap, and are
never used again. The hold is a kill switch of the mesh. Only the acceptance of the gaps that it lists turns it off.
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
"""The server's limit for one atomic write."""
LISTED_BYTES_MAX = 96 * 1024
"""The limit for the listed records of one gap, since a hold is one record."""
WITNESS = "a service that was connected before"
HELD = "the journal lost its end"


@dataclass(frozen=True, slots=True)
class LostRecord:
    """A lost record as a witness knows it. ``command``: the target of the command that it decides or whose effect it records."""

    sequence: int
    subject: str
    command: Mapping[str, str] = field(default_factory=dict)

    @property
    def register(self) -> Register:
        return parse_register(self.subject)

    def to_json(self) -> list[Any]:
        """Its form in the record of the hold."""
        return [self.sequence, self.subject, dict(self.command)]


@dataclass(frozen=True, slots=True)
class Proof:
    """The witness ``found_by`` knows that the journal reached ``end``. ``records``: those that it knows, in order.

    ``open_end``: the journal may have reached further. ``replaced``: another record has the sequence ``end`` now.
    """

    end: int
    found_by: str
    records: Sequence[LostRecord] = ()
    open_end: bool = False
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """Sequences that the journal lost at its end. ``records``: the lost records that a witness knows.

    ``unlisted``: the number of unknown lost records. ``open_end``: no witness knows the end, only that it was not lower.
    After the acceptance, one record of each session is kept.
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
        """Its form in the record of the hold, and for programs."""
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
    """The hold of the mesh in its last record. ``sequence`` 0: the mesh was never held.

    ``gaps``: those to accept or, after the hold, those of the last acceptance. ``before``: those that were accepted earlier.
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
        """A person confirms it: it identifies these gaps."""
        return sha256_hex(canonical_json([each.to_json() for each in self.gaps]))


def read_hold(stored: Stored) -> Hold:
    """The hold in a message of its register.

    Raises:
        Damaged.
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
    """The bytes of its record, which includes the fields of every kill switch."""
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
    """The current hold.

    Raises:
        Unavailable. Damaged: its record cannot be read.
    """
    page = await bus.last(stream, [MESH_HOLD])
    return read_hold(page.messages[0]) if page.messages else Hold()


async def hold_mesh(bus: Bus, stream: str, proof: Proof, writer: str) -> Gap | None:
    """Hold the mesh if the journal ends below ``proof.end``; returns the gap, or None if the journal reaches that end.

    Other records may have the lost sequences already: they keep them, and the hold only lists the gap. Several witnesses may
    detect the same loss at once: the first one creates the gap, the others find it.

    Raises:
        Unavailable: whether the mesh is held is unknown; another call is safe. Damaged: the register of the hold is unreadable.
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
            # The fence counts records that the server knows to be unreadable; its state does not.
            await _fill(bus, last, max(last, known), end, hold_record(hold, writer))
        except (WrongLastSequence, BatchRefused):
            continue
        await remove_filling(bus, stream)
        return gap
    raise Unavailable("other processes are writing the hold of the mesh")


async def check_end(bus: Bus, stream: str) -> Gap | None:
    """As `hold_mesh`, for the highest end that this bus has seen; one request if the journal reaches it."""
    end = bus.reached(stream)
    if (await bus.stream_state(stream)).last_sequence >= end:
        return None
    return await hold_mesh(bus, stream, Proof(end, WITNESS), WITNESS)


async def known_end(bus: Bus, stream: str) -> int:
    """The highest sequence that the server knows to be lost; 0 if there is none."""
    return max((last for _, last in await bus.holes(stream)), default=0)


async def remove_filling(bus: Bus, stream: str) -> None:
    """Remove a filling, which leaves a gap. A witness that died may have left one."""
    if await bus.counts(stream, FILLER):
        await bus.purge(stream, FILLER)


async def _standing(bus: Bus, stream: str) -> Hold:
    """The current hold; none if the server cannot read its record."""
    try:
        return await standing_hold(bus, stream)
    except Damaged:
        return Hold()


def _held(before: Hold, gap: Gap) -> Hold:
    """Add a gap to the gaps that wait for acceptance."""
    over = () if before.on else tuple(each.brief for each in before.gaps)
    waiting = before.gaps if before.on else ()
    return Hold(
        on=True, gaps=(*waiting, gap), before=(*before.before, *over), by=gap.found_by, at_ms=gap.at_ms
    )


async def _fill(bus: Bus, last: int, fence: int, end: int, hold: bytes) -> None:
    """Store messages after ``last`` up to ``end``, and the hold directly after them, fenced on ``fence``.

    The fence prevents a gap by an outdated answer, such as that of a former leader.
    """
    while (count := end - last) >= BATCH_MAX:
        # One less than the limit, so that the hold is never alone in a batch: a witness that dies before it leaves an end that is
        # still too low.
        fence = last = (await bus.publish_batch(_filling(BATCH_MAX - 1, fence))).sequence
    if count > 0:
        await bus.publish_batch([*_filling(count, fence), Message(MESH_HOLD, hold)])
    else:
        await bus.publish(Message(MESH_HOLD, hold, expect_last=fence))


def _filling(count: int, fence: int) -> list[Message]:
    return [Message(FILLER, b"", expect_last=None if n else fence) for n in range(count)]


def _listed(records: Iterable[LostRecord]) -> list[LostRecord]:
    """The first records, up to the limit of one record of the hold."""
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
