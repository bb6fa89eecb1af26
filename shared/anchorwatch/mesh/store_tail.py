"""The records in a block of the server's store, whatever is damaged between them: where a journal ended before a cut.

A record begins with its length (4 bytes, the top bit: it has headers), sequence (8), time (8) and the length of its subject (2),
little endian; then the subject, the headers after their length, the payload, and a digest of 8 bytes
(https://github.com/nats-io/nats-server/blob/main/server/filestore.go). It is found by its subject, so that damage hides no
record but the damaged.
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
"""Higher bits mark what was erased."""
_SUBJECT = re.compile(rb"aw\.journal\.[!-~]+")


@dataclass(frozen=True, slots=True)
class Tail:
    """What stands in the newest block. ``whole``: nothing that is no record stands behind the last one."""

    records: tuple[Stored, ...] = ()
    whole: bool = True

    @property
    def end(self) -> int:
        """The highest sequence; 0: there is none."""
        return max((each.sequence for each in self.records), default=0)

    def lost_after(self, last: int) -> list[LostRecord]:
        """The records behind ``last``, in order."""
        found = {each.sequence: each for each in self.records if each.sequence > last}
        return [LostRecord(at, each.subject, _command(each)) for at, each in sorted(found.items())]


def read_tail(block: bytes) -> Tail:
    """The journal records of a block that is not compressed."""
    records, end = [], 0
    for stored, after in _records(block):
        records.append(stored)
        end = max(end, after)
    return Tail(tuple(records), whole=end >= len(block))


def _records(block: bytes) -> Iterator[tuple[Stored, int]]:
    """Each record, and where it ends."""
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
    """What the command of a record acts on; empty: it decides none, or cannot be read."""
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
