"""One counter: exact for the vocabularies that are carried, never an exception, quick enough to ask before every call."""

import json
import random
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from anchorwatch.core.errors import Damaged
from anchorwatch.models.profile import OPENAI
from anchorwatch.models.request import NUDGE, prepare
from anchorwatch.models.shaping import nudged
from anchorwatch.models.tokens import (
    CALL_TOKENS,
    CL100K,
    ESTIMATE_RATIO,
    MESSAGE_TOKENS,
    O200K,
    REQUEST_TOKENS,
    TOOLS_TOKENS,
    WHITE_RUN_CHARS_MAX,
    Counter,
    counter_for,
    load_ranks,
)
from hypothesis import given, settings
from hypothesis import strategies as st

O200K_COUNTER = Counter(O200K)
CL100K_COUNTER = Counter(CL100K)
TOOL = {
    "type": "function",
    "function": {
        "name": "launch_instances",
        "description": "Start instances.",
        "parameters": {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]},
    },
}

anything = st.text(st.characters(), max_size=200)
awkward = st.one_of(
    anything,
    st.text("漢字かな交じり文한국어ไทย", max_size=80),
    st.text("👩‍👩‍👧‍👦🇫🇷🏽", max_size=40),
    st.text(" \t\n\r\u00a0\u3000\u2028", max_size=300),
    st.recursive(
        st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    ).map(json.dumps),
    st.sampled_from(["<|endoftext|>", "<|im_start|>system", "\ud800", "\0", "a" * 5000, "=" * 5000]),
)


# Counts published by the makers' own encoder for the same texts.
@pytest.mark.parametrize(
    ("text", "o200k", "cl100k"),
    [
        ("", 0, 0),
        ("hello world", 2, 2),
        ("tiktoken is great!", 6, 6),
        ("antidisestablishmentarianism", 6, 6),
        ("2 + 2 = 4", 7, 7),
        ("お誕生日おめでとう", 8, 9),
    ],
)
def test_known_texts_have_their_known_counts(text: str, o200k: int, cl100k: int) -> None:
    assert (O200K_COUNTER.text(text), CL100K_COUNTER.text(text)) == (o200k, cl100k)


@given(awkward)
def test_any_text_counts_to_at_most_its_bytes(text: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    for counter in (O200K_COUNTER, CL100K_COUNTER):
        assert (1 if text else 0) <= counter.text(text) <= size or not text


@given(awkward, awkward)
def test_separate_texts_need_no_fewer_tokens_than_a_merge_saves(one: str, other: str) -> None:
    apart = O200K_COUNTER.text(one) + O200K_COUNTER.text(other)
    together = O200K_COUNTER.text(one + " | " + other)
    # A seam costs a few tokens; it can never double a text.
    assert together <= 2 * apart + 8


@given(st.lists(awkward, max_size=5))
def test_request_is_the_sum_of_its_parts(texts: list[str]) -> None:
    messages = [{"role": "user", "content": text} for text in texts]
    expected = REQUEST_TOKENS + sum(MESSAGE_TOKENS + 1 + O200K_COUNTER.text(text) for text in texts)
    assert O200K_COUNTER.request(messages, ()) == expected


@given(awkward)
@settings(max_examples=30)
def test_asking_again_gives_the_same(text: str) -> None:
    assert Counter(O200K).text(text) == O200K_COUNTER.text(text) == O200K_COUNTER.text(text)


def test_spelt_control_token_is_text() -> None:
    assert O200K_COUNTER.text("<|endoftext|>") > 1


@pytest.mark.slow
@pytest.mark.parametrize("white", [" ", "\n", "\t", " \n", "\u00a0", "\u3000"])
@pytest.mark.parametrize("around", ["", "x"])
def test_million_white_spaces_count(white: str, around: str) -> None:
    text = around + white * (1_000_000 // len(white)) + around
    assert 0 < O200K_COUNTER.text(text) <= 1_000_010
    assert 0 < CL100K_COUNTER.text(text) <= 1_000_010


def test_cutting_a_long_white_run_takes_no_token_away() -> None:
    run = " " * (WHITE_RUN_CHARS_MAX * 2 + 5)
    encoding_whole = O200K_COUNTER.text(" " * WHITE_RUN_CHARS_MAX)
    assert O200K_COUNTER.text(f"a{run}b") >= 2 * encoding_whole


def test_megabyte_is_counted_in_seconds_and_then_from_cache() -> None:
    chance = random.Random(7)
    words = [f"w{chance.randrange(10**6):x}" for _ in range(20_000)]
    text = "".join(
        f'{{"id": "{chance.choice(words)}", "état": "运行", "rate": {chance.random()}}}\n'
        for _ in range(17_000)
    )
    assert len(text.encode()) > 1_000_000
    message = {"role": "tool", "tool_call_id": "1", "content": text}
    started = time.perf_counter()
    first = O200K_COUNTER.request([message], ())
    counted = time.perf_counter()
    again = O200K_COUNTER.request([message] * 10, ())
    finished = time.perf_counter()
    assert again > 9 * first
    # Generous: the machine may be busy. Ten times the text is still much quicker than the first time.
    assert counted - started < 20
    assert finished - counted < (counted - started) + 0.5


def test_tools_are_counted() -> None:
    messages = [{"role": "user", "content": "go"}]
    without = O200K_COUNTER.request(messages, ())
    with_one = O200K_COUNTER.request(messages, (TOOL,))
    assert with_one >= without + TOOLS_TOKENS + O200K_COUNTER.text(json.dumps(TOOL))
    assert O200K_COUNTER.request(messages, (TOOL, TOOL)) > with_one


def test_past_calls_and_their_results_are_counted() -> None:
    arguments = json.dumps({"reason": "x " * 500})
    called = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "restart", "arguments": arguments}}
        ],
    }
    assert O200K_COUNTER.message(called) >= O200K_COUNTER.text(arguments) + CALL_TOKENS
    parts = {
        "role": "user",
        "content": [{"type": "text", "text": "y " * 500}, {"type": "image_url", "image_url": {"url": "u"}}],
    }
    assert O200K_COUNTER.message(parts) > 500


def test_nudge_fits_into_the_charge_of_every_request() -> None:
    messages, _ = prepare([{"role": "user", "content": "go"}], ())
    opening_of_the_answer = 3
    nudge = O200K_COUNTER.request(nudged(OPENAI, messages), ()) - O200K_COUNTER.request(messages, ())
    assert NUDGE
    assert nudge + opening_of_the_answer <= REQUEST_TOKENS


@pytest.mark.parametrize(
    ("model", "vocabulary", "estimate"),
    [
        ("gpt-4o-mini", O200K, False),
        ("gpt-5.1", O200K, False),
        ("o3", O200K, False),
        ("openai/gpt-4.1", O200K, False),
        ("gpt-oss-20b", O200K, False),
        ("gpt-4", CL100K, False),
        ("gpt-3.5-turbo", CL100K, False),
        ("qwen3:8b", O200K, True),
        ("text-davinci-003", O200K, True),
        ("", O200K, True),
    ],
)
def test_model_is_counted_in_its_vocabulary_or_by_a_stated_ratio(
    model: str, vocabulary: object, *, estimate: bool
) -> None:
    counter = counter_for(model)
    assert (counter.vocabulary, counter.estimate) == (vocabulary, estimate)
    assert counter.ratio == (ESTIMATE_RATIO if estimate else 1.0)


def test_estimate_is_above_the_plain_count() -> None:
    messages = [{"role": "user", "content": "How many proofs an hour?"}]
    plain = Counter(O200K).request(messages, (TOOL,))
    assert counter_for("llama").request(messages, (TOOL,)) >= plain * ESTIMATE_RATIO


def test_ranks_that_are_not_the_published_ones_are_refused() -> None:
    with pytest.raises(Damaged, match="not the published ones"):
        load_ranks(replace(O200K, sha256="0" * 64))


def test_missing_ranks_are_reported() -> None:
    with pytest.raises(Damaged, match="cannot be read"):
        load_ranks(replace(O200K, name="p50k_base"))


def test_counting_needs_no_network_and_no_cache_directory() -> None:
    program = (
        "import socket, sys\n"
        "def no(*a, **k): raise AssertionError('the network was asked')\n"
        "socket.socket.connect = no; socket.getaddrinfo = no\n"
        "from anchorwatch.models.tokens import Counter, CL100K\n"
        "assert 'tiktoken' not in sys.modules, 'loaded before anyone counts'\n"
        "assert Counter().text('hello world') == 2 == Counter(CL100K).text('hello world')\n"
        "assert 'requests' not in sys.modules\n"
    )
    environment = {"TIKTOKEN_CACHE_DIR": "/nonexistent/cache", "PATH": "/nonexistent"}
    subprocess.run([sys.executable, "-W", "error", "-c", program], env=environment, check=True, timeout=60)
