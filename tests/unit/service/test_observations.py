"""The format of the observer's answer."""

from __future__ import annotations

import pytest
from anchorwatch.core.errors import Unavailable
from anchorwatch.core.facts import Observation
from anchorwatch.service.observations import encode_answer, encode_error, read_answer, unavailable

SEEN = Observation(
    "w-1 running\n", {"queued": 3, "dead": None}, 17, "d1", 30.0, {"instances": [{"id": "w-1"}]}
)


def test_answer_round_trips() -> None:
    assert read_answer(encode_answer(SEEN)) == SEEN


def test_error_answer_raises_unavailable_with_its_reason() -> None:
    with pytest.raises(Unavailable, match="the yard is away"):
        read_answer(encode_error("the yard is away"))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"null", b'{"text": "x"}', b"\xff"])
def test_invalid_answer_raises_unavailable(data: bytes) -> None:
    with pytest.raises(Unavailable):
        read_answer(data)


def test_unavailable_observation_is_unknown_and_uncitable() -> None:
    nothing = unavailable("no observer answers", ["queued", "dead"], 5)
    assert nothing.facts == {"queued": None, "dead": None}
    assert nothing.unknown == ("queued", "dead")
    assert nothing.digest == ""
    assert nothing.text == "observation unavailable: no observer answers"
