"""Records survive the trip, and no single byte of them can change unseen."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from anchorwatch.codec import (
    canonical_json,
    decode,
    decode_anchor,
    encode,
    encode_anchor,
    pack,
    sha256_hex,
)
from anchorwatch.codec.versions import SCHEMAS, Versions
from anchorwatch.core.anchor import SCHEMA, Anchor, TurnMark
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
def test_record_survives_a_round_trip(body: dict[str, object]) -> None:
    record = Record("kind", 5, "me", body, "ab" * 32)
    data, digest = encode(record)
    assert decode(data) == replace(record, digest=digest)


def test_every_changed_byte_of_a_record_is_seen() -> None:
    data, _ = encode(RECORD)
    for position in range(len(data)):
        for flip in (0x01, 0x80):
            changed = bytearray(data)
            changed[position] ^= flip
            with pytest.raises(Damaged):
                decode(bytes(changed))


ODD = st.sampled_from(['"format":1,', '"digest":"', "format", "digest", "record"])
ODD_FIELDS = st.recursive(
    ODD | st.text(max_size=8) | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.dictionaries(ODD | st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(ODD | st.text(max_size=8), ODD_FIELDS, max_size=5),
    st.dictionaries(ODD | st.text(max_size=8), ODD_FIELDS, max_size=5),
    st.builds(TurnMark, id=ODD, started_at=ODD, woken_by=st.just(0), inputs_through=st.just(0)) | st.none(),
    ODD,
)
def test_anchor_record_is_canonical_json_for_any_content(
    facts: dict[str, Any], body: dict[str, Any], turn: TurnMark | None, name: str
) -> None:
    anchor = replace(ANCHOR, facts=facts, turn=turn, session=name, workspace=name)
    data, digest = encode_anchor(anchor, Record(Kind.TURN_ENDED, 7, name, body, "cd" * 32))
    content = json.loads(data)
    assert data == canonical_json(content)
    assert content["record"].pop("digest") == digest == sha256_hex(canonical_json(content))
    assert content["record"]["body"] == body
    assert decode_anchor(data)[0] == anchor


def test_every_changed_byte_of_an_anchor_is_seen() -> None:
    record = Record(Kind.TURN_ENDED, 7, "planner-1:ab", {"reason": "done"}, "cd" * 32)
    data, digest = encode_anchor(ANCHOR, record)
    assert decode_anchor(data) == (ANCHOR, replace(record, digest=digest))
    for position in range(len(data)):
        for flip in (0x01, 0x04, 0x20):
            changed = bytearray(data)
            changed[position] ^= flip
            with pytest.raises(Damaged):
                decode_anchor(bytes(changed))


@pytest.mark.parametrize("cut", [0, 1, 10, -1])
def test_cut_record_is_damaged(cut: int) -> None:
    data, _ = encode(RECORD)
    with pytest.raises(Damaged):
        decode(data[:cut])


@given(st.binary(max_size=200))
def test_noise_is_always_damaged(data: bytes) -> None:
    with pytest.raises(Damaged):
        decode(data)
    with pytest.raises(Damaged):
        decode_anchor(data)


def sealed(*fields: object) -> bytes:
    """A record of whatever fields, with the digest that belongs to them."""
    head = pack([*fields, b"\0" * 32])[:-34]
    return head + pack(sha256(head).digest())


def sealed_anchor(content: dict[str, object], envelope: dict[str, object]) -> bytes:
    """An anchor record of whatever fields, with the digest that belongs to them."""
    digest = sha256_hex(canonical_json({**content, "record": envelope}))
    return canonical_json({**content, "record": {**envelope, "digest": digest}})


ENVELOPE = {"format": 1, "kind": "acquired", "at_ms": 1, "writer": "me", "previous": "", "body": {}}


def test_newer_format_is_refused_with_both_versions() -> None:
    with pytest.raises(NewerSchema, match=r"format 2.*up to 1"):
        decode(sealed(2, "kind", 1, "me", b"", b"", "a field of tomorrow"))
    with pytest.raises(NewerSchema, match=r"format 2.*up to 1"):
        decode_anchor(sealed_anchor({"schema": 9}, {**ENVELOPE, "format": 2}))
    with pytest.raises(NewerSchema, match=rf"schema 9.*up to {SCHEMA}"):
        decode_anchor(sealed_anchor({**ANCHOR.to_json(), "schema": 9}, ENVELOPE))


def test_altered_version_is_damage_and_no_newer_release() -> None:
    data = bytearray(encode(RECORD)[0])
    assert data[1] == 1
    data[1] = 2
    with pytest.raises(Damaged) as caught:
        decode(bytes(data))
    assert caught.type is Damaged


@pytest.mark.parametrize("version", [0, -1, True, None, "1", 1.0])
def test_version_of_no_release_is_damage(version: object) -> None:
    with pytest.raises(Damaged, match=r"version|no release"):
        decode(sealed(version, "kind", 1, "me", b"", pack({})))
    with pytest.raises(Damaged, match=r"version|no release"):
        decode_anchor(sealed_anchor(ANCHOR.to_json(), {**ENVELOPE, "format": version}))


def test_older_record_is_lifted_version_by_version() -> None:
    formats = Versions[Record](
        "the record has format",
        2,
        {
            0: lambda old: replace(old, body={**old.body, "through": ["0 to 1"]}),
            1: lambda old: replace(
                old, body={**old.body, "through": [*old.body.get("through", []), "1 to 2"]}
            ),
        },
    )
    for written, through in ((0, ["0 to 1", "1 to 2"]), (1, ["1 to 2"])):
        data = sealed(written, "kind", 1, "me", b"", pack({"kept": 7}))
        lifted = decode(data, formats)
        assert lifted.body == {"kept": 7, "through": through}
        assert lifted.digest == data[-32:].hex(), "the chain is over what was written"
    with pytest.raises(NewerSchema, match=r"format 3.*up to 2"):
        decode(sealed(3, "kind", 1, "me", b"", pack({})), formats)


def test_older_anchor_is_lifted_version_by_version() -> None:
    schemas = Versions[dict[str, Any]](
        "the anchor has schema",
        SCHEMA,
        {**SCHEMAS.lifts, 0: lambda old: {**old, "schema": 1, "agent": f"{old['agent']}@1"}},
    )
    old = {**ANCHOR.to_json(), "schema": 0, "agent": "keeper"}
    anchor, record = decode_anchor(sealed_anchor(old, ENVELOPE), schemas=schemas)
    assert (anchor, record.kind) == (ANCHOR, "acquired")
    with pytest.raises(Damaged, match="schema 0, which no release wrote"):
        decode_anchor(sealed_anchor(old, ENVELOPE))


@pytest.mark.parametrize(
    "content",
    [
        [1, 5, 1, "me", b"", pack({})],
        [1, "kind", 1, "me", b"", pack([])],
        [1, "kind", 1, "me", b"", b"\xc1"],
        [1, "kind", 1, "me", b"", b"\x81\x90\x90"],
        [1],
    ],
)
def test_sealed_record_of_an_odd_shape_is_damaged(content: list[object]) -> None:
    with pytest.raises(Damaged):
        decode(sealed(*content))


@pytest.mark.parametrize(
    "odd", [{"kind": 5}, {"at_ms": "x"}, {"writer": None}, {"body": []}, {"previous": 1}]
)
def test_sealed_anchor_of_an_odd_shape_is_damaged(odd: dict[str, object]) -> None:
    with pytest.raises(Damaged):
        decode_anchor(sealed_anchor(ANCHOR.to_json(), {**ENVELOPE, **odd}))


@pytest.mark.parametrize(
    "data", [b"[" * 200_000, b'{"record":{},"x":NaN}', b'{"record":{},"x":"\\ud800"}', b"{}"]
)
def test_json_other_than_an_anchor_is_damaged(data: bytes) -> None:
    with pytest.raises(Damaged):
        decode_anchor(data)


def test_too_large_is_refused_not_cut() -> None:
    with pytest.raises(TooLarge):
        encode(Record("kind", 1, "me", {"text": "x" * 300_000}))
    with pytest.raises(TooLarge, match="16384"):
        encode_anchor(replace(ANCHOR, constraints=("x" * 20_000,)), RECORD)
