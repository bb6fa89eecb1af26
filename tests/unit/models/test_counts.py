"""The count of any text: what a second implementation of the same vocabularies counts, at any size, and never an exception."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable

import pytest
from anchorwatch.models.text import clean
from anchorwatch.models.tokens import CL100K, O200K, WHITE_RUN_CHARS_MAX, Counter, Vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st

with warnings.catch_warnings():
    # It opens its data in a way that some versions of Python advise against.
    warnings.simplefilter("ignore", DeprecationWarning)
    from bpe_openai._bindings import tokenizer_for_encoding

VOCABULARIES = (O200K, CL100K)
SECOND = {each: tokenizer_for_encoding(each.name) for each in VOCABULARIES}
MEGABYTE = 1_000_000

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|endofprompt|>", "<|fim_prefix|>", "<|start|>system<|message|>")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=6),
    max_leaves=30,
)
pieces = st.one_of(
    st.text(max_size=60),
    st.text("漢字かな交じり文한국어ไทยहिन्दी", max_size=60),
    st.text("👩‍👩‍👧‍👦🇫🇷🏽🫠❤️", max_size=30),
    st.text(" \t\n\r\v\f\u00a0\u2003\u3000\u2028\u200b", max_size=200),
    st.text("'sStTrReEvVmMlLdD \u017f\u212a", max_size=40),
    st.text("0123456789.,-+eE", max_size=40),
    st.sampled_from(SPECIAL),
    json_values.map(lambda value: json.dumps(value, ensure_ascii=False)),
    st.tuples(st.sampled_from(("a", "=", "-", "é", "漢", "\t", "9")), st.integers(1, 3_000)).map(
        lambda drawn: drawn[0] * drawn[1]
    ),
)
texts = st.lists(pieces, max_size=6).map("".join)


def second_count(vocabulary: Vocabulary, text: str) -> int:
    return int(SECOND[vocabulary].count(clean(text)))


@pytest.mark.parametrize("vocabulary", VOCABULARIES, ids=lambda each: each.name)
@given(text=texts)
@settings(max_examples=100, deadline=None)
def test_text_count_equals_that_of_a_second_implementation(vocabulary: Vocabulary, text: str) -> None:
    assert Counter(vocabulary).text(clean(text)) == second_count(vocabulary, text)


@given(texts)
@settings(max_examples=60, deadline=None)
def test_unclean_text_is_counted(text: str) -> None:
    broken = f"{text}\ud83d{text}\udc00\0"
    for vocabulary in VOCABULARIES:
        assert Counter(vocabulary).text(broken) > 0
        message = {"role": "tool", "content": broken, "tool_call_id": "call_1"}
        assert Counter(vocabulary).request([message], ()) > 0


def _prose(chance: random.Random) -> str:
    words = [f"w{chance.randrange(10**5):x}" for _ in range(5_000)]
    return " ".join(chance.choice(words) for _ in range(MEGABYTE // 8))


def _records(chance: random.Random) -> str:
    return "".join(
        json.dumps({"id": n, "état": chance.choice("运行停止"), "rate": chance.random()}, ensure_ascii=False)
        + "\n"
        for n in range(MEGABYTE // 45)
    )


def _drawn(alphabet: str) -> Callable[[random.Random], str]:
    return lambda chance: "".join(chance.choices(alphabet, k=MEGABYTE // len(alphabet[0].encode())))


LARGE: dict[str, Callable[[random.Random], str]] = {
    "prose": _prose,
    "json": _records,
    "cjk": _drawn("漢字仮名交文章東京都"),
    "emoji": _drawn("👩👧👦🏽🫠😀"),
    "digits": _drawn("0123456789"),
    "control tokens": lambda _: "<|endoftext|>" * (MEGABYTE // 13),
    "one letter": lambda _: "a" * MEGABYTE,
    "no seam": _drawn("abcdefghijklmnopqrstuvwxyz"),
    "lines": lambda _: "\n" * MEGABYTE,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LARGE)
def test_megabyte_count_equals_that_of_a_second_implementation(kind: str) -> None:
    text = LARGE[kind](random.Random(kind))[:MEGABYTE]
    counted = Counter(O200K).text(text)
    expected = second_count(O200K, text)
    # Overlong white space is cut, which may add a token a cut and takes none away.
    spare = len(text) // WHITE_RUN_CHARS_MAX + 1 if text.isspace() else 0
    assert expected <= counted <= expected + spare
