"""Records survive the trip, and no single byte of them can change unseen."""

from __future__ import annotations

import pytest
from anchorwatch.codec import canonical_json, decode, decode_anchor, encode, encode_anchor, pack
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import Damaged, NewerSchema, TooLarge
from anchorwatch.core.records import Kind, Record
from hypothesis import given
from hypothesis import strategies as st

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(max_size=20)
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
BODY = st.dictionaries(st.text(max_size=8), PLAIN, max_size=5)
RECORD = Record(
    Kind.CLAIM, 1_700_000_000_000, "executor-1:ab", {"attempt": 1, "effect_key": "aw-1"}, "00" * 32
)
ANCHOR = Anchor(
    workspace="default", session="fleet", agent="keeper@1", facts={"tasks_queued": 59}, objectives=("500 ü",)
)


@given(BODY)
def test_a_record_comes_back_as_it_was(body: dict[str, object]) -> None:
    data, written = encode(Record("kind", 5, "me", body, "ab" * 32))
    assert decode(data) == written


def test_every_changed_byte_of_a_record_is_seen() -> None:
    data, _ = encode(RECORD)
    for position in range(len(data)):
        for flip in (0x01, 0x80):
            changed = bytearray(data)
            changed[position] ^= flip
            with pytest.raises(Damaged):
                decode(bytes(changed))


def test_every_changed_byte_of_an_anchor_is_seen() -> None:
    data, written = encode_anchor(
        ANCHOR, Record(Kind.TURN_ENDED, 7, "planner-1:ab", {"reason": "done"}, "cd" * 32)
    )
    assert decode_anchor(data) == (ANCHOR, written)
    for position in range(len(data)):
        for flip in (0x01, 0x04, 0x20):
            changed = bytearray(data)
            changed[position] ^= flip
            with pytest.raises(Damaged):
                decode_anchor(bytes(changed))


@pytest.mark.parametrize("cut", [0, 1, 10, -1])
def test_a_cut_record_is_damaged(cut: int) -> None:
    data, _ = encode(RECORD)
    with pytest.raises(Damaged):
        decode(data[:cut])


@given(st.binary(max_size=200))
def test_noise_is_damaged_and_nothing_else(data: bytes) -> None:
    with pytest.raises(Damaged):
        decode(data)
    with pytest.raises(Damaged):
        decode_anchor(data)


def test_a_newer_format_is_refused_with_both_versions() -> None:
    with pytest.raises(NewerSchema, match=r"format 2.*up to 1"):
        decode(pack([2, "kind", 1, "me", b"", b"", b"", "a field of tomorrow"]))
    newer = canonical_json({"schema": 9, "record": {"format": 2, "kind": "acquired"}})
    with pytest.raises(NewerSchema, match=r"format 2.*up to 1"):
        decode_anchor(newer)


def test_too_large_is_refused_not_cut() -> None:
    with pytest.raises(TooLarge):
        encode(Record("kind", 1, "me", {"text": "x" * 300_000}))
    with pytest.raises(TooLarge, match="16384"):
        encode_anchor(ANCHOR.model_copy(update={"constraints": ("x" * 20_000,)}), RECORD)
