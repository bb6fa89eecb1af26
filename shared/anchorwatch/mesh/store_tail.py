"""The records in a block of the server's store, even if some are damaged: where a journal ended before a cut.

A record begins with its length (4 bytes; the top bit says that it has headers), sequence (8), time (8) and the length of its
subject (2), little endian. Then come the subject, the length of the headers and the headers, the payload, and a digest of 8
bytes (https://github.com/nats-io/nats-server/blob/main/server/filestore.go). The search is for subjects, so damage hides
only the damaged records.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode
from anchorwatch.core.errors import BadInput, Damaged
from anchorwatch.journal.mapping import read_command
from anchorwatch.journal.truncation import LostRecord
from anchorwatch.topology.subjects import parse_register

_HEAD = struct.Struct("<IQqH")
_DIGEST_BYTES = 8
_HAS_HEADERS = 1 << 31
_SEQUENCE_MAX = 1 << 53
"""Higher bits mark an erased record."""
_SUBJECT = re.compile(rb"aw\.journal\.[!-~]+")


@dataclass(frozen=True, slots=True)
class Tail:
    """The contents of the newest block. ``whole``: no other bytes follow the last record."""

    records: tuple[Stored, ...] = ()
    whole: bool = True

    @property
    def end(self) -> int:
        """The highest sequence; 0 if there is no record."""
        return max((each.sequence for each in self.records), default=0)

    def lost_after(self, last: int) -> list[LostRecord]:
        """The records after ``last``, in order."""
        later = {each.sequence: each for each in self.records if each.sequence > last}
        return [LostRecord(at, each.subject, _command(each)) for at, each in sorted(later.items())]


def read_tail(block: bytes) -> Tail:
    """The journal records of an uncompressed block."""
    records, end = [], 0
    for stored, after in _records(block):
        records.append(stored)
        end = max(end, after)
    return Tail(tuple(records), whole=end >= len(block))


def _records(block: bytes) -> Iterator[tuple[Stored, int]]:
    """Each record and the position of its end."""
    for match in _SUBJECT.finditer(block):
        start = match.start() - _HEAD.size
        if start < 0:
            continue
        length, sequence, time_ns, size = _HEAD.unpack_from(block, start)
        body, after = match.start() + size, start + (length & ~_HAS_HEADERS)
        subject = block[match.start() : body]
        if not 0 < sequence < _SEQUENCE_MAX or time_ns <= 0 or _SUBJECT.fullmatch(subject) is None:
            continue
        if length & _HAS_HEADERS and body + 4 <= len(block):
            body += 4 + int.from_bytes(block[body : body + 4], "little")
        payload = block[body : max(body, after - _DIGEST_BYTES)]
        yield Stored(subject.decode(), sequence, time_ns // 1_000_000, payload), min(after, len(block))


def _command(stored: Stored) -> dict[str, str]:
    """The target of the command in a record; empty for another kind of record, or an unreadable one."""
    try:
        register = parse_register(stored.subject)
        if register.kind != "p.cmd":
            return {}
        command = read_command(register.pool, decode(stored.payload).body)
    except (BadInput, Damaged, KeyError, TypeError, ValueError):
        return {}
    return {
        "call": str(command.call),
        "tool": command.tool,
        "resource": command.resource,
        "agent": command.agent,
    }
