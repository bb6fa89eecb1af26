"""Any value becomes data that every reader can hold."""

from __future__ import annotations

import json
from pathlib import Path

from anchorwatch.codec import pack, unpack
from anchorwatch.codec.plain import plain
from hypothesis import given
from hypothesis import strategies as st

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(alphabet=st.characters()) | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.integers() | st.text(), inner),
    max_leaves=20,
)


@given(ANY)
def test_json_and_msgpack_give_back_the_same(value: object) -> None:
    data = plain(value)
    assert unpack(pack(data)) == data
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert plain(data) == data


def test_plain_value_is_unchanged() -> None:
    value = {"a": [1, 2.5, "x", None, True], "b": {"c": {}}}
    assert plain(value) == value


def test_value_without_a_plain_form_becomes_text() -> None:
    assert plain({1: Path("x"), "big": 2**64, "inf": float("inf"), "s": "\ud800"}) == {
        "1": "x",
        "big": str(2**64),
        "inf": "inf",
        "s": "?",
    }


def test_depth_has_an_end() -> None:
    deep: list[object] = []
    for _ in range(500):
        deep = [deep]
    assert len(json.dumps(plain(deep))) < 2_000
