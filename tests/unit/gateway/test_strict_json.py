"""JSON as the API takes it."""

from __future__ import annotations

import json

import pytest
from anchorwatch.codec import canonical_json
from anchorwatch.core.errors import BadInput
from anchorwatch_gateway.guard import INTEGER_MAX, JSON_DEPTH_MAX, parse_json
from hypothesis import given
from hypothesis import strategies as st

from tests.support.branches import reach, reaches

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-INTEGER_MAX, INTEGER_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
)


@given(values)
def test_valid_json_is_read_unchanged(value: object) -> None:
    assert parse_json(json.dumps(value).encode()) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode()) == value


@reaches("read", "refused")
@given(st.binary() | text.map(str.encode) | values.map(json.dumps).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        value = parse_json(data)
    except BadInput:
        reach("refused")
    else:
        reach("read")
        # A value that is read can be hashed, recorded and shown.
        canonical_json(value)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", 400),
        (b"\xff", 400),
        (b"NaN", 400),
        (b"-Infinity", 400),
        (b"'a'", 400),
        (b"1" * 5000, 400),
        (b"1e999", 422),
        (b"-1e999", 422),
        (str(2**63).encode(), 422),
        (str(-(2**63)).encode(), 422),
        (b'{"a": 1, "a": 2}', 422),
        (b'"\\u0000"', 422),
        (b'{"\\u0000": 1}', 422),
        (b'"\\udc00"', 422),
        (b'{"a": ["\\ud83d"]}', 422),
        (b"[" * 5000 + b"]" * 5000, 422),
        (b"[" * (JSON_DEPTH_MAX + 1) + b"]" * (JSON_DEPTH_MAX + 1), 422),
    ],
)
def test_json_that_cannot_be_kept_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(BadInput) as refused:
        parse_json(data)
    assert refused.value.http_status == status


def test_values_at_the_bounds_are_accepted() -> None:
    assert parse_json(str(INTEGER_MAX).encode()) == INTEGER_MAX
    parse_json(b"[" * JSON_DEPTH_MAX + b"]" * JSON_DEPTH_MAX)
    assert parse_json(b'"\\ud83d\\ude00"') == "😀"
