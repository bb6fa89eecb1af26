"""An examination finds every change of any record, and nothing in a journal that is whole."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise

import pytest
from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode_anchor, encode, encode_anchor, pack
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import FORMAT, Kind, Record
from anchorwatch.journal.integrity.examine import Examiner
from anchorwatch.journal.integrity.findings import Finding
from anchorwatch.journal.integrity.report import examine
from anchorwatch.journal.reading import open_record

from tests.support.kept_journal import read_kept

KEPT = read_kept()
SESSIONS = ("fleet", "by-hand", "midway", "gone", "held", "orders", "mended")


def ref(session: str) -> SessionRef:
    return SessionRef("default", session)


def found_in(session: str, messages: Iterable[Stored]) -> Sequence[Finding]:
    return examine(ref(session), messages).findings


def swapped(messages: Sequence[Stored], index: int, payload: bytes) -> list[Stored]:
    return [*messages[:index], replace(messages[index], payload=payload), *messages[index + 1 :]]


@pytest.mark.parametrize("session", SESSIONS)
def test_journal_that_is_whole_has_no_findings(session: str) -> None:
    examiner = examine(ref(session), KEPT.of(session))
    assert examiner.findings == []
    assert examiner.families.open() == []
    assert examiner.records == len(KEPT.of(session))


@pytest.mark.slow
@pytest.mark.parametrize("session", SESSIONS)
def test_every_changed_byte_of_every_record_is_found(session: str) -> None:
    """One bit of each byte of each record of the session."""
    missed = []
    for index, stored in enumerate(KEPT.of(session)):
        for position in range(len(stored.payload)):
            changed = bytearray(stored.payload)
            changed[position] ^= 1 << (position % 8)
            alone = Examiner(ref(session))
            alone.take(replace(stored, payload=bytes(changed)))
            if not any(
                each.sequence == stored.sequence and each.trouble == "unreadable" for each in alone.findings
            ):
                missed.append((index, position))
    assert missed == []


def test_changed_byte_is_one_finding_with_sequence_and_register() -> None:
    messages = KEPT.of("by-hand")
    chance = random.Random(1)
    for index, stored in enumerate(messages):
        changed = bytearray(stored.payload)
        changed[chance.randrange(len(changed))] ^= 0x40
        (found,) = found_in("by-hand", swapped(messages, index, bytes(changed)))
        assert (found.sequence, found.trouble) == (stored.sequence, "unreadable")
        assert stored.subject.endswith(f".by-hand.{found.register}")
        assert found.consequence


@pytest.mark.parametrize("cut", [0, 1, 5, -1])
def test_cut_record_is_found(cut: int) -> None:
    for stored in KEPT.messages:
        alone = Examiner(ref(stored.subject.split(".")[4]))
        alone.take(replace(stored, payload=stored.payload[:cut]))
        assert [(each.sequence, each.trouble) for each in alone.findings] == [(stored.sequence, "unreadable")]


def test_planner_record_that_is_missing_is_a_gap_at_the_next() -> None:
    messages = KEPT.of("fleet")
    chain = [index for index, each in enumerate(messages) if ".p." in each.subject]
    for index, behind in pairwise(chain):
        if open_record(messages[index]).record.kind == Kind.COMMAND:
            # Its effect's records then have no command, and say so themselves.
            continue
        found = found_in("fleet", [*messages[:index], *messages[index + 1 :]])
        assert (messages[behind].sequence, "gap") in [(each.sequence, each.trouble) for each in found]


def test_two_records_that_changed_places_are_found() -> None:
    messages = KEPT.of("fleet")
    chain = [index for index, each in enumerate(messages) if ".p." in each.subject]
    first, second = chain[3], chain[4]
    changed = list(messages)
    changed[first] = replace(
        messages[first], payload=messages[second].payload, subject=messages[second].subject
    )
    changed[second] = replace(
        messages[second], payload=messages[first].payload, subject=messages[first].subject
    )
    assert "gap" in [each.trouble for each in found_in("fleet", changed)]


def test_second_record_of_a_write_once_register_is_found() -> None:
    messages = KEPT.of("fleet")
    for kind in (Kind.INPUT, Kind.ARTIFACT):
        stored = next(each for each in messages if open_record(each).record.kind == kind)
        (found,) = found_in("fleet", [*messages, replace(stored, sequence=9_000)])
        assert (found.sequence, found.trouble) == (9_000, "twice")


def test_record_of_another_session_register_or_release_is_found() -> None:
    messages = KEPT.of("fleet")
    other = next(each for each in KEPT.of("by-hand") if ".p.anchor." in each.subject)
    moved = replace(other, subject=messages[0].subject, sequence=9_000)
    assert "misplaced" in [each.trouble for each in found_in("fleet", [*messages, moved])]

    claim, _ = encode(Record(Kind.CLAIM, 1, "me", {"owner": ["a", "b"], "attempt": 1, "effect_key": "k"}))
    for register in ("in.k-9", "ctl.x-1", "late.1.1.1", "art.a-1", "sent.1-a-b", "other.thing", "single"):
        put = Stored(f"aw.journal.0.default.fleet.{register}", 9_000, 1, claim)
        (found,) = found_in("fleet", [*messages, put])
        assert found.trouble in ("misplaced", "unreadable")

    head = pack([FORMAT + 1, "kind", 1, "me", b"", pack({}), b"\0" * 32])[:-34]
    newer = Stored("aw.journal.0.default.fleet.in.k-9", 9_000, 1, head + pack(sha256(head).digest()))
    (found,) = found_in("fleet", [*messages, newer])
    assert found.trouble == "newer"
    assert f"format {FORMAT + 1}" in found.what


def test_anchor_that_lowers_a_growing_counter_is_found() -> None:
    messages = KEPT.of("fleet")
    index = max(index for index, each in enumerate(messages) if ".p.anchor." in each.subject)
    anchor, record = decode_anchor(messages[index].payload)
    for change, word in (
        ({"run_id": 1}, "run_id"),
        ({"generation": 1}, "generation"),
        ({"inputs_through": 1}, "inputs_through"),
        ({"fence": replace(anchor.fence, run=1)}, "fence"),
        ({"run_id": anchor.run_id + 1}, "run"),
    ):
        payload, _ = encode_anchor(replace(anchor, **change), replace(record, digest=""))
        found = found_in("fleet", swapped(messages, index, payload))
        assert any(each.trouble == "odd" and word in each.what for each in found)


def test_outcomes_that_do_not_belong_together_are_found() -> None:
    messages = KEPT.of("by-hand")
    done = [each for each in messages if each.subject.endswith(".done")]
    twice = replace(done[0], sequence=9_000)
    (found,) = found_in("by-hand", [*messages, twice])
    assert "has an outcome already" in found.what
    elsewhere = replace(done[0], subject=done[0].subject.replace(".1.1.1.", ".1.7.7."), sequence=9_000)
    (found,) = found_in("by-hand", [*messages, elsewhere])
    assert "in the register of 1.7.7" in found.what


def test_stream_gap_since_the_creation_of_the_session_is_found() -> None:
    messages = KEPT.of("by-hand")
    first, last = messages[0].sequence, messages[-1].sequence
    holes = [(1, first - 1), (first + 1, first + 2), (last + 1, last + 5)]
    found = examine(ref("by-hand"), messages, holes).findings
    assert [(each.sequence, each.through, each.trouble) for each in found] == [
        (first + 1, first + 2, "lost"),
        (last + 1, last + 5, "lost"),
    ]
