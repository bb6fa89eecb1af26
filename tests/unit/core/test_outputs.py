"""What stands in for a long output: it says what was there, and how large, however often it is cut."""

from __future__ import annotations

import json

import pytest
from anchorwatch.core.session.outputs import is_stand_in, stand_in
from hypothesis import given
from hypothesis import strategies as st

TEXTS = st.one_of(
    st.text(),
    st.lists(st.text(alphabet="abc é中😀", max_size=300), min_size=2, max_size=200).map("\n".join),
    st.dictionaries(st.text(max_size=8), st.one_of(st.integers(), st.text(max_size=400))).map(json.dumps),
    st.lists(st.integers(), max_size=500).map(json.dumps),
)


def test_short_output_is_unchanged() -> None:
    assert stand_in("done", "call 1.1.1", 10) == "done"


def test_lines_show_their_beginning_and_their_end() -> None:
    text = "\n".join(f"line {n}" for n in range(1, 1001))
    cut = stand_in(text, "call 15.2.1", 200)
    assert cut.splitlines()[0] == "[call 15.2.1: 1,000 lines, 8,892 characters, cut]"
    assert "line 1\n" in cut
    assert cut.endswith("line 1000")
    assert len(cut) <= 200


def test_object_shows_its_plain_fields_and_the_sizes_of_others() -> None:
    text = json.dumps({"status": "running", "log": ["x" * 50] * 100, "meta": {"a": 1}, "price": 0.21})
    cut = stand_in(text, "call 3.1.2", 300)
    assert cut.splitlines() == [
        f"[call 3.1.2: JSON object of 4 fields, {len(text):,} characters, cut]",
        'status: "running"',
        "log: list of 100",
        "meta: object of 1 fields",
        "price: 0.21",
    ]


@given(TEXTS, st.integers(100, 3_000), st.integers(100, 3_000))
def test_second_cut_keeps_the_size_of_the_whole(text: str, first: int, second: int) -> None:
    once = stand_in(text, "call 2.1.1", max(first, second))
    twice = stand_in(once, "call 2.1.1", min(first, second))
    assert len(twice) <= min(first, second)
    if is_stand_in(once) and len(text) > max(first, second):
        assert twice.splitlines()[0] == once.splitlines()[0]
    assert stand_in(twice, "call 2.1.1", min(first, second)) == twice


@pytest.mark.parametrize("room", [0, 1, 30, 60])
def test_header_is_whole_in_any_room(room: int) -> None:
    cut = stand_in("word " * 1_000, "call 1.1.1", room)
    assert cut.startswith("[call 1.1.1: text, 5,000 characters, cut]")
