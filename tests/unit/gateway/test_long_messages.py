"""What the record holds of a message that is too long for it: never half an order, and every order."""

from __future__ import annotations

import pytest
from anchorwatch.core.session.critical import critical_lines
from anchorwatch_gateway.inputs import OPENING_CHARS, shorten
from hypothesis import given
from hypothesis import strategies as st

LINE = "a line of a log, which nobody needs\n"
ORDER = "CRITICAL: never more than 4 instances"


def test_labelled_line_after_the_opening_is_kept() -> None:
    text = LINE * 1_000 + f"  {ORDER} \n" + LINE + "CRITICAL: Ärger vermeiden\r\nnot CRITICAL: this"
    opening, labelled = shorten(text)
    assert opening == text[:OPENING_CHARS]
    assert labelled == [ORDER, "CRITICAL: Ärger vermeiden"]


@pytest.mark.parametrize("shift", range(len(ORDER) + 3))
def test_cut_never_halves_a_labelled_line(shift: int) -> None:
    before = "x" * (OPENING_CHARS - shift - 1) + "\n"
    opening, labelled = shorten(before + ORDER + "\n" + LINE * 1_000)
    assert critical_lines(opening) + labelled == [ORDER]


def test_cut_creates_no_labelled_line() -> None:
    text = "x" * OPENING_CHARS + "CRITICAL: said in the middle of a line\n" + LINE * 1_000
    assert shorten(text) == ("x" * OPENING_CHARS, [])


@given(
    st.lists(
        st.sampled_from(["CRITICAL: é", " CRITICAL:", "x", "", "\r", "\u2028", "CRIT", "\n"]), min_size=30
    )
)
def test_labelled_lines_of_text_and_record_agree(parts: list[str]) -> None:
    text = "y" * (OPENING_CHARS - 60) + "".join(parts) + "\n" + LINE * 10
    opening, labelled = shorten(text)
    assert text.startswith(opening)
    kept = critical_lines("\n".join((opening, "[a note]", *labelled)))
    assert dict.fromkeys(kept) == dict.fromkeys(critical_lines(text))
