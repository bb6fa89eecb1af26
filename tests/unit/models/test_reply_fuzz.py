"""However an answer is broken: a validated reply or one of the three errors, never anything else."""

import json
import re

import pytest
from anchorwatch.models.port import ContextOverflow, ModelRefused, ModelReply, ModelUnavailable
from anchorwatch.models.reply import CALLS_MAX, LABEL_CHARS_MAX, read_reply
from anchorwatch.models.request import RAW_CHARS_MAX
from hypothesis import given, settings

from tests.support.mutations import bodies

TOKENS_MAX = 4096


@pytest.mark.slow
@given(bodies)
@settings(max_examples=600, deadline=None)
def test_broken_answer_is_a_validated_reply_or_a_port_error(body: bytes) -> None:
    try:
        reply = read_reply(body, completion_tokens_max=TOKENS_MAX)
    except (ModelUnavailable, ModelRefused, ContextOverflow) as error:
        str(error).encode()
        return
    check(reply)


def check(reply: ModelReply) -> None:
    """All that is promised of a reply, whatever the endpoint sent."""
    decision = reply.decision
    assert decision.text or decision.calls
    assert len(decision.calls) <= CALLS_MAX
    for text in (decision.text, reply.model, reply.finish):
        assert "\0" not in text
        text.encode()
    for tokens in (reply.usage.prompt_tokens, reply.usage.completion_tokens):
        assert tokens is None or (type(tokens) is int and tokens >= 0)
    for call in decision.calls:
        assert re.fullmatch(r"[A-Za-z0-9_.\-]{1,64}", call.name)
        assert len(call.label) <= LABEL_CHARS_MAX
        assert len(call.raw) <= RAW_CHARS_MAX
        json.dumps([call.label, call.raw, call.problem], ensure_ascii=False).encode()
        if call.arguments is None:
            assert call.problem
        else:
            assert type(call.arguments) is dict
            assert not call.problem
            assert reply.finish != "length"
            json.dumps(call.arguments, allow_nan=False, ensure_ascii=False).encode()
