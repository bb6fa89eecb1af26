"""Arguments of a tool call: a strict JSON object, or a problem that the model can read. Nothing is mended."""

import json
import math
from typing import Any

import pytest
from anchorwatch.models.arguments import ARGUMENTS_BYTES_MAX, DEPTH_MAX, BadArguments, read_arguments
from hypothesis import given
from hypothesis import strategies as st

from tests.support.branches import reach, reaches

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (None, "no arguments"),
        (7, "no arguments"),
        (["x"], "no arguments"),
        ("", "empty"),
        ("  ", "empty"),
        ("null", "not a JSON object"),
        ("[]", "not a JSON object"),
        ('"x"', "not a JSON object"),
        ("3", "not a JSON object"),
        ("true", "not a JSON object"),
        ('{"count": 2', "not JSON"),
        ('{"count": 2}}', "not JSON"),
        ('{"reason": "he said "no""}', "not JSON"),
        ("{'count': 2}", "not JSON"),
        ('```json\n{"count": 2}\n```', "not JSON"),
        ('{"count": 1, "count": 50}', "twice"),
        ('{"a": {"b": 1, "b": 2}}', "twice"),
        ('{"a\\u0000": 1, "a\\ufffd": 2}', "twice"),
        ('{"count": NaN}', "NaN"),
        ('{"count": -Infinity}', "Infinity"),
        ('{"count": 1e999}', "too large"),
        ('{"count": 9223372036854775808}', "64 bits"),
        ('{"count": ' + "9" * 5000 + "}", "64 bits"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "larger|deeply"),
        ('{"a": ' + "[" * 30_000 + "]" * 30_000 + "}", "deeply"),
        ('{"a": ' + "[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1) + "}", "deeply"),
        ('{"a": "' + "x" * ARGUMENTS_BYTES_MAX + '"}', "larger"),
        ({"count": math.nan}, "NaN"),
    ],
)
def test_argument_that_is_not_an_object_is_a_problem(raw: Any, problem: str) -> None:
    with pytest.raises(BadArguments, match=problem):
        read_arguments(raw)


@given(
    st.dictionaries(
        st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=8), plain, max_size=6
    )
)
def test_object_is_read_as_it_is(value: dict[str, Any]) -> None:
    assert read_arguments(json.dumps(value)) == value
    assert read_arguments(json.dumps(value, ensure_ascii=False, indent=2)) == value
    assert read_arguments(value) == value


@reaches("object", "problem")
@given(
    st.text(max_size=100)
    | st.text('{}[]":,0123456789eE.-\\u tfn', max_size=60)
    | st.dictionaries(st.text(max_size=4), plain, max_size=3).map(json.dumps)
)
def test_any_text_is_an_object_or_a_problem(raw: str) -> None:
    try:
        value = read_arguments(raw)
    except BadArguments:
        reach("problem")
    else:
        reach("object")
        assert json.loads(json.dumps(value, allow_nan=False, ensure_ascii=False).encode()) == value


def test_strings_are_cleaned_and_pairs_of_surrogates_kept() -> None:
    value = read_arguments('{"a\\u0000": ["x\\ud800y", "\\ud83d\\ude00", {"k": "\\u0000"}]}')
    assert value == {"a\ufffd": ["x\ufffdy", "😀", {"k": "\ufffd"}]}
