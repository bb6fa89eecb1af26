"""The records of a block of the store are read even if others in it are damaged."""

from __future__ import annotations

import struct

import pytest
from anchorwatch.codec import encode
from anchorwatch.core.records import Record
from anchorwatch.mesh.store_tail import read_tail

NS = 1_800_000_000_000_000_000
COMMAND = {
    "run": 3,
    "step": 1,
    "n": 2,
    "turn": "t",
    "generation": 1,
    "agent": "keeper@1",
    "tool": "fire",
    "args": {},
    "resource": "gun",
    "label": "",
    "observation": ["", 0],
}


def record(sequence: int, subject: str, payload: bytes, headers: bytes = b"") -> bytes:
    """As the server's file store writes it (filestore.go, writeMsgRecord)."""
    head = struct.pack("<I", len(headers)) + headers if headers else b""
    size = 22 + len(subject) + len(head) + len(payload) + 8
    length = size | (1 << 31 if headers else 0)
    start = struct.pack("<IQqH", length, sequence, NS + sequence, len(subject))
    return start + subject.encode() + head + payload + b"8 digest"


def block(count: int = 6) -> bytes:
    return b"".join(
        record(n, f"aw.journal.0.w.s.in.k{n}", b"x" * 50, b"NATS/1.0\r\n\r\n") for n in range(1, count + 1)
    )


def test_each_record_is_read_with_its_payload() -> None:
    tail = read_tail(block())
    assert [(each.sequence, each.subject) for each in tail.records] == [
        (n, f"aw.journal.0.w.s.in.k{n}") for n in range(1, 7)
    ]
    assert {each.payload for each in tail.records} == {b"x" * 50}
    assert (tail.end, tail.whole) == (6, True)


@pytest.mark.parametrize("at", range(0, 120, 7))
def test_damage_hides_only_the_damaged_records(at: int) -> None:
    content = bytearray(block())
    content[at : at + 40] = bytes(40)
    tail = read_tail(bytes(content))
    assert tail.end == 6
    assert {3, 4, 5, 6} <= {each.sequence for each in tail.records}


@pytest.mark.parametrize(
    "end", [b"\0" * 64, record(7, "aw.journal.0.w.s.in.k7", b"x")[:30]], ids=["nulls", "torn"]
)
def test_unreadable_end_of_a_block_is_not_its_end(end: bytes) -> None:
    tail = read_tail(block() + end)
    assert tail.end >= 6
    assert not tail.whole


def test_subject_in_a_payload_is_not_a_record() -> None:
    tail = read_tail(record(1, "aw.journal.0.w.s.in.k1", b'"text": "aw.journal.0.w.s.in.k9" and more of it'))
    assert [each.sequence for each in tail.records] == [1]


def test_lost_command_names_its_target() -> None:
    payload, _ = encode(Record("command", 1, "planner-1:a", COMMAND))
    tail = read_tail(block() + record(7, "aw.journal.0.w.s.p.cmd.default", payload))
    [lost] = tail.lost_after(6)
    assert (lost.sequence, lost.register.kind) == (7, "p.cmd")
    assert lost.command == {"call": "3.1.2", "tool": "fire", "resource": "gun", "agent": "keeper@1"}
