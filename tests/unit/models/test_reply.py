"""Every shape of an answer ends as a validated reply, or as one of the three errors of the port."""

import json
from typing import Any

import pytest
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.models.port import (
    ContextOverflow,
    ModelRefused,
    ModelReply,
    ModelUnavailable,
    ProposedCall,
)
from anchorwatch.models.reply import CALLS_MAX, UNNAMED, EmptyAnswer, read_reply
from anchorwatch.models.request import RAW_CHARS_MAX
from anchorwatch.models.usage import Usage

from tests.support import model_server as said

TOKENS_MAX = 4096


def read(reply: said.Reply) -> ModelReply:
    return read_reply(reply.body, completion_tokens_max=TOKENS_MAX)


def one_call(reply: said.Reply) -> ProposedCall:
    (call,) = read(reply).decision.calls
    return call


# ---------------------------------------------------------------- what is an answer


def test_text_ends_the_turn() -> None:
    reply = read(said.text("All is well."))
    assert (reply.decision.text, reply.decision.calls, reply.finish) == ("All is well.", (), "stop")
    assert (reply.usage, reply.model) == (Usage(100, 20), said.MODEL)


def test_calls_keep_their_order_and_labels_are_only_labels() -> None:
    reply = read(
        said.calls(said.call("a", {"n": 1}, "list:0"), said.call("b", {"n": 2}, "list:0"), content="I will.")
    )
    assert reply.decision.calls == (
        ProposedCall("a", {"n": 1}, "list:0"),
        ProposedCall("b", {"n": 2}, "list:0"),
    )
    assert reply.decision.text == "I will."


def test_calls_under_any_finish_reason_are_calls() -> None:
    for finish in ("stop", "tool_calls", "function_call", None, 7, "eos"):
        assert one_call(said.calls(said.call("a"), finish=finish)).arguments == {}


def test_call_in_the_old_form_is_a_call() -> None:
    legacy = {"role": "assistant", "content": None, "function_call": {"name": "a", "arguments": '{"n": 1}'}}
    assert one_call(said.answer(legacy)) == ProposedCall("a", {"n": 1})


def test_arguments_sent_as_an_object_are_accepted() -> None:
    sent = {"id": "1", "type": "function", "function": {"name": "a", "arguments": {"n": 1}}}
    assert one_call(said.calls(sent)).arguments == {"n": 1}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "text", "text": "All "}, {"type": "text", "text": "well."}], "All well."),
        ([{"type": "output_text", "text": "All"}, {"type": "image"}, 7, None, " well."], "All well."),
        ([{"type": "thinking", "text": "hm"}, {"type": "text", "text": "Well."}], "Well."),
        ({"type": "text", "text": "Well."}, "Well."),
        ("<think>hm</think>Well.", "Well."),
        ("a\0b\ud800c", "a\ufffdb\ufffdc"),
    ],
)
def test_content_of_each_known_shape_becomes_text(content: Any, text: str) -> None:
    assert read(said.answer({"role": "assistant", "content": content})).decision.text == text


def test_refusal_is_an_answer() -> None:
    assert (
        read(said.answer({"role": "assistant", "content": None, "refusal": "I can't."})).decision.text
        == "I can't."
    )


@pytest.mark.parametrize(
    "usage",
    [
        ...,
        None,
        7,
        "many",
        [],
        {},
        {"prompt_tokens": "100"},
        {"prompt_tokens": -1, "completion_tokens": True},
    ],
)
def test_usage_without_numbers_is_none(usage: Any) -> None:
    assert read(said.text("ok", usage=usage)).usage == Usage()


def test_invalid_model_name_is_left_out() -> None:
    assert read(said.text("ok", model=None)).model == ""
    assert read(said.text("ok", model={"id": 1})).model == ""
    assert len(read(said.text("ok", model="m" * 10_000)).model) <= 128


# ---------------------------------------------------------------- what was cut


@pytest.mark.parametrize("finish", ["length", "max_tokens", "MAX_TOKENS", "model_length"])
def test_cut_answer_runs_no_call(finish: str) -> None:
    reply = read(said.calls(said.call("a", {"n": 1}), said.call("b", '{"n": '), finish=finish))
    assert [(call.arguments, call.problem) for call in reply.decision.calls] == [(None, "truncated")] * 2
    assert reply.finish == "length"
    assert reply.decision.calls[0].raw == '{"n": 1}'


def test_answer_of_the_maximum_length_was_cut_whatever_its_label() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": TOKENS_MAX}
    assert one_call(said.calls(said.call("a"), usage=usage)).problem == "truncated"
    assert read(said.text("and so", usage=usage)).finish == "length"


# ---------------------------------------------------------------- calls that are none


@pytest.mark.parametrize("arguments", ["null", "[]", '"x"', '{"n": 1', '{"n": "a "b" c"}', "", "{'n': 1}"])
def test_arguments_that_are_no_object_are_never_mended(arguments: str) -> None:
    call = one_call(said.calls(said.call("a", arguments)))
    assert (call.name, call.arguments, call.raw, call.label) == ("a", None, arguments, "call_1")
    assert call.problem


def test_raw_is_bounded_and_clean() -> None:
    call = one_call(said.calls(said.call("a", "\0\ud800" + "x" * 5_000)))
    assert len(call.raw) == RAW_CHARS_MAX
    call.raw.encode()
    assert "\0" not in call.raw


@pytest.mark.parametrize("name", [None, 7, "", "a b", "a\0", "x" * 65, "../a", {"n": 1}, "naïve", "a\n"])
def test_invalid_call_name_is_not_run(name: Any) -> None:
    call = one_call(said.calls(said.call(name, {"n": 1})))
    assert (call.name, call.arguments) == (UNNAMED, None)
    assert call.problem


@pytest.mark.parametrize(
    "sent", [None, 7, "a", [], {}, {"function": None}, {"function": "a"}, {"function": []}]
)
def test_call_of_no_known_shape_is_not_run(sent: Any) -> None:
    call = one_call(said.calls(sent))
    assert (call.name, call.arguments) == (UNNAMED, None)


@pytest.mark.parametrize("label", [None, 7, {"a": 1}, ["x"]])
def test_label_that_is_not_text_is_empty(label: Any) -> None:
    assert one_call(said.calls(said.call("a", {}, label))) == ProposedCall("a", {})


def test_one_bad_call_spoils_no_other() -> None:
    good, bad = read(said.calls(said.call("a", {"n": 1}), said.call("b", "nonsense"))).decision.calls
    assert good.arguments == {"n": 1}
    assert bad.arguments is None


def test_too_many_calls_are_all_refused_with_the_reason() -> None:
    found = read(said.calls(*(said.call("a", {"n": n}) for n in range(CALLS_MAX + 36)))).decision.calls
    assert len(found) == CALLS_MAX
    assert all(call.arguments is None and "100 calls" in call.problem for call in found)


# ---------------------------------------------------------------- what is no answer

EMPTY = {"role": "assistant", "content": None}
OVERFLOW_TEXT = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (904 in the completion)."


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (said.html(), ModelUnavailable),
        (said.raw(""), ModelUnavailable),
        (said.raw("   "), ModelUnavailable),
        (said.raw("upstream connect error"), ModelUnavailable),
        (said.raw('{"choices": [{"mess'), ModelUnavailable),
        (said.raw(b"\xff\xfe\x00garbage"), ModelUnavailable),
        (said.raw("[" * 200_000), ModelUnavailable),
        (said.raw("9" * 10_000), ModelUnavailable),
        (said.raw("data: {}\n\ndata: [DONE]\n\n"), ModelUnavailable),
        (said.raw("null"), ModelUnavailable),
        (said.raw("[]"), ModelUnavailable),
        (said.raw('"text"'), ModelUnavailable),
        (said.raw("3"), ModelUnavailable),
        (said.raw("{}"), ModelUnavailable),
        (said.answer(EMPTY, choices=None), ModelUnavailable),
        (said.answer(EMPTY, choices=[]), ModelUnavailable),
        (said.answer(EMPTY, choices={}), ModelUnavailable),
        (said.answer(EMPTY, choices=[None]), ModelUnavailable),
        (said.answer(EMPTY, choices=["text"]), ModelUnavailable),
        (said.answer(EMPTY, choices=[{"finish_reason": "stop"}]), ModelUnavailable),
        (said.answer(None), ModelUnavailable),
        (said.answer("text"), ModelUnavailable),
        (said.answer({"content": 7}), ModelUnavailable),
        (said.answer({"content": {"parts": []}}), ModelUnavailable),
        (said.answer({"content": "x", "tool_calls": {"id": 1}}), ModelUnavailable),
        (said.answer({"content": "x", "tool_calls": "launch"}), ModelUnavailable),
        (said.answer(EMPTY), EmptyAnswer),
        (said.answer({}), EmptyAnswer),
        (said.answer({"content": "  \n"}), EmptyAnswer),
        (said.answer({"content": "<think>hm</think>"}), EmptyAnswer),
        (said.answer({"content": [], "tool_calls": []}), EmptyAnswer),
        (said.answer({"content": None, "reasoning_content": "hm"}, "length"), EmptyAnswer),
        (said.answer(EMPTY, "content_filter"), ModelRefused),
        (said.error(200, "overloaded"), ModelUnavailable),
        (said.error(200, "slow down", 429), ModelUnavailable),
        (said.error(200, "no such key", 401), ModelRefused),
        (said.error(200, "no such key", "invalid_api_key"), ModelRefused),
        (said.error(200, "no such model", "model_not_found"), ModelRefused),
        (said.error(200, "too long", "context_length_exceeded"), ContextOverflow),
        (said.flat_error(200, OVERFLOW_TEXT, 400), ContextOverflow),
        (said.raw('{"error": "model is loading"}'), ModelUnavailable),
        (said.raw('{"error": ["what"]}'), ModelUnavailable),
        (said.answer(EMPTY, choices=[{"error": {"code": 502, "message": "bad gateway"}}]), ModelUnavailable),
    ],
)
def test_invalid_answer_raises_its_error(reply: said.Reply, expected: type[AnchorWatchError]) -> None:
    with pytest.raises(AnchorWatchError) as raised:
        read(reply)
    assert type(raised.value) is expected
    assert raised.value.message
    assert len(str(raised.value)) < 1_000


def test_answer_cut_before_its_start_names_the_setting_to_raise() -> None:
    with pytest.raises(EmptyAnswer, match="ANCHORWATCH_COMPLETION_TOKENS_MAX"):
        read(said.answer({"content": "<think>on and on"}, "length"))


def test_reply_is_always_valid_json() -> None:
    reply = read(said.calls(said.call("a", '{"t": "\\ud800\\u0000"}'), content="\ud800"))
    content = [reply.decision.text, [call.arguments for call in reply.decision.calls]]
    assert json.loads(json.dumps(content, ensure_ascii=False).encode()) == content
    assert content == ["\ufffd", [{"t": "\ufffd\ufffd"}]]
