"""What an endpoint's refusal means, and that it never gives a secret away."""

from datetime import UTC, datetime
from typing import Any

import pytest
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.models.faults import RETRY_AFTER_S_MAX, fault_of, retry_after_s
from anchorwatch.models.port import ContextOverflow, ModelRefused, ModelUnavailable
from anchorwatch.models.text import HIDDEN, redact
from hypothesis import given
from hypothesis import strategies as st

VLLM = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages)."
LLAMA = {
    "error": {
        "code": 400,
        "message": "the request exceeds the available context size, try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 9000,
        "n_ctx": 4096,
    }
}
OPENAI = {
    "error": {
        "message": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
}


def fault(status: int, body: Any) -> AnchorWatchError:
    return fault_of(status, body, redact=redact)


def named(message: str = "no", code: Any = None, kind: str = "error") -> dict[str, Any]:
    return {"error": {"message": message, "code": code, "type": kind}}


@pytest.mark.parametrize(
    ("status", "body", "tokens"),
    [
        (400, OPENAI, 9001),
        (400, {"object": "error", "message": VLLM, "type": "BadRequestError", "code": 400}, 4000),
        (400, LLAMA, 9000),
        (500, LLAMA, 9000),
        (
            400,
            named("The decoder prompt (length 5000) is longer than the maximum model length of 4096."),
            None,
        ),
        (422, {"detail": "Input is too long: prompt is too long"}, None),
        (413, "<html>Request Entity Too Large</html>", None),
        (400, {"error": "input length exceeds context window"}, None),
    ],
)
def test_overflow_is_seen_in_each_of_its_shapes(status: int, body: Any, tokens: int | None) -> None:
    found = fault(status, body)
    assert isinstance(found, ContextOverflow)
    assert tokens is None or found.tokens == tokens
    assert "ANCHORWATCH_CONTEXT_TOKENS_MAX" in found.hint


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        ({"message": VLLM}, 4096),
        ({"error": {"type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 4096}}, 4096),
        ("The decoder prompt (length 5000) is longer than the maximum model length of 2048.", 2048),
        ("the request exceeds the available context size (8192)", 8192),
        ({"error": {"message": "prompt is too long"}}, None),
    ],
)
def test_endpoint_limit_is_read_from_its_error(body: Any, limit: int | None) -> None:
    found = fault(400, body)
    assert isinstance(found, ContextOverflow)
    assert found.limit == limit


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 520, 529])
@pytest.mark.parametrize("body", [named(), "", "upstream timed out", None, {"detail": ["x"]}, 7, []])
def test_passing_fault_may_be_retried(status: int, body: Any) -> None:
    assert isinstance(fault(status, body), ModelUnavailable)


@pytest.mark.parametrize(
    ("status", "body", "setting"),
    [
        (401, named("bad key"), "ANCHORWATCH_MODEL_KEY"),
        (403, "", "ANCHORWATCH_MODEL_KEY"),
        (400, named("bad key", "invalid_api_key"), "ANCHORWATCH_MODEL_KEY"),
        (402, named("pay"), "ANCHORWATCH_MODEL_KEY"),
        (429, named("no credit", "insufficient_quota"), "ANCHORWATCH_MODEL_KEY"),
        (404, named("no such model", "model_not_found"), "ANCHORWATCH_MODEL_NAME"),
        (404, "<html>", "ANCHORWATCH_MODEL_URL"),
        (400, named("no such model", "model_not_found"), "ANCHORWATCH_MODEL_NAME"),
        (302, "", "ANCHORWATCH_MODEL_URL"),
        (405, "", ""),
        (400, named("unknown field"), ""),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, ""),
    ],
)
def test_lasting_fault_names_the_setting(status: int, body: Any, setting: str) -> None:
    found = fault(status, body)
    assert isinstance(found, ModelRefused)
    assert setting in found.hint
    assert found.hint
    assert found.lasting is bool(setting), "what a setting mends is so for every request"


def test_rate_limit_that_mentions_context_is_still_a_rate_limit() -> None:
    assert isinstance(
        fault(429, named("too many tokens for your context window this minute")), ModelUnavailable
    )


def test_endpoint_message_is_passed_on_bounded_and_on_one_line() -> None:
    found = fault(400, named("bad\nthing " + "x" * 10_000))
    assert "bad thing" in found.message
    assert len(found.message) < 400


@pytest.mark.parametrize(
    "secret",
    ["sk-proj-abcdefgh12345678", "hf_abcdefgh12345678", "Bearer abc.def.ghi", "gsk_1234567890abcdef"],
)
def test_credential_like_text_is_hidden(secret: str) -> None:
    found = fault(401, named(f"Incorrect API key provided: {secret}. Find yours elsewhere."))
    assert secret not in str(found)
    assert HIDDEN in str(found)


def test_own_key_is_hidden_in_any_form() -> None:
    assert redact("the key swordfish is wrong", "swordfish") == f"the key {HIDDEN} is wrong"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "Tue, 17 Mar 2026 18:56:53 GMT"}, 10.0),
        ({"retry-after": "Tue, 17 Mar 2026 18:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e300"}, RETRY_AFTER_S_MAX),
        ({"retry-after": ""}, None),
    ],
)
def test_retry_after_is_read_in_each_of_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, datetime(2026, 3, 17, 18, 56, 43, tzinfo=UTC)) == seconds


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "type", "detail", "n_prompt_tokens", "status"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.integers(200, 599), json_values)
def test_body_with_any_status_maps_to_one_of_three_faults(status: int, body: Any) -> None:
    found = fault(status, body)
    assert type(found) in {ModelUnavailable, ModelRefused, ContextOverflow}
    str(found).encode()


@given(st.text(max_size=40))
def test_any_retry_after_is_seconds_or_nothing(value: str) -> None:
    seconds = retry_after_s({"retry-after": value})
    assert seconds is None or 0 <= seconds <= RETRY_AFTER_S_MAX
