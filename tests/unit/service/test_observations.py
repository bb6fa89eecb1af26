"""The form of the observer's answer."""

from __future__ import annotations

import pytest
from anchorwatch.core.errors import Unavailable
from anchorwatch.core.facts import Observation
from anchorwatch.service.observations import answer, answer_error, read_answer, unavailable

SEEN = Observation(
    "w-1 running\n", {"queued": 3, "dead": None}, 17, "d1", 30.0, {"instances": [{"id": "w-1"}]}
)


def test_an_answer_reads_back_as_it_was() -> None:
    assert read_answer(answer(SEEN)) == SEEN


def test_an_error_is_unavailable_with_its_reason() -> None:
    with pytest.raises(Unavailable, match="the yard is away"):
        read_answer(answer_error("the yard is away"))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"null", b'{"text": "x"}', b"\xff"])
def test_an_answer_that_cannot_be_read_is_unavailable(data: bytes) -> None:
    with pytest.raises(Unavailable):
        read_answer(data)


def test_what_was_not_seen_is_unknown_and_cannot_be_cited() -> None:
    nothing = unavailable("nobody answers", ["queued", "dead"], 5)
    assert nothing.facts == {"queued": None, "dead": None}
    assert nothing.unknown == ("queued", "dead")
    assert nothing.digest == ""
    assert nothing.text == "observation unavailable: nobody answers"
