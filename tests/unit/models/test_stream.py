"""A streamed answer is read as the whole one that it stands for; one that did not come to its end is none."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.models.port import ContextOverflow, ModelRefused, ModelReply, ModelUnavailable
from anchorwatch.models.reply import read_reply
from anchorwatch.models.stream import BrokenStream, Stream
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.branches import reach, reaches
from tests.support.mutations import bodies
from tests.support.streams import answers, broken, streams
from tests.unit.models.test_reply_fuzz import check

TOKENS_MAX = 4096


def read(parts: Iterable[bytes]) -> ModelReply:
    stream, raw = Stream(), b""
    for part in parts:
        raw += part
        stream.feed(part)
    whole = stream.close()
    return read_reply(raw if whole is None else whole, completion_tokens_max=TOKENS_MAX)


def said(*chunks: Any, done: bool = True) -> list[bytes]:
    """These chunks as a stream."""
    lines = [f"data: {chunk if isinstance(chunk, str) else json.dumps(chunk)}\n\n" for chunk in chunks]
    return ["".join([*lines, "data: [DONE]\n\n"] if done else lines).encode()]


def delta(finish: Any = None, **members: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": members, "finish_reason": finish}]}


def fragment(arguments: Any = None, name: Any = None, **members: Any) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return delta(tool_calls=[{**members, "function": function}])


END = delta("stop")


def called(*chunks: Any) -> list[tuple[str, Any]]:
    reply = read(said(*chunks, END))
    return [(call.name, call.arguments) for call in reply.decision.calls]


def outcome(parts: Iterable[bytes]) -> object:
    """A reply, or the error and what it says."""
    try:
        return read(parts)
    except AnchorWatchError as error:
        return type(error), str(error)


@pytest.mark.slow
@reaches("reply")
@given(st.data())
@settings(max_examples=150, deadline=None)
def test_whole_and_streamed_answers_are_the_same_reply(data: st.DataObject) -> None:
    whole = data.draw(answers())
    parts = data.draw(streams(whole))
    streamed, at_once = outcome(parts), outcome([json.dumps(whole).encode()])
    if isinstance(streamed, ModelReply) and isinstance(at_once, ModelReply):
        reach("reply")
        # A server that gives its calls no ids when it streams gives none: they are labels.
        assert [(call.name, call.arguments, call.raw, call.problem) for call in streamed.decision.calls] == [
            (call.name, call.arguments, call.raw, call.problem) for call in at_once.decision.calls
        ]
        assert streamed.decision.text == at_once.decision.text
        assert (streamed.usage, streamed.finish, streamed.model) == (
            at_once.usage,
            at_once.finish,
            at_once.model,
        )
    else:
        assert streamed == at_once


@pytest.mark.slow
@reaches("reply", "error")
@given(st.data())
@settings(max_examples=150, deadline=None)
def test_broken_stream_is_a_validated_reply_or_a_port_error(data: st.DataObject) -> None:
    parts = data.draw(
        st.one_of(broken(data.draw(answers())), bodies.map(lambda body: [b"data: " + body + b"\n\n"]))
    )
    try:
        reply = read(parts)
    except (ModelUnavailable, ModelRefused, ContextOverflow, BrokenStream) as error:
        reach("error")
        str(error).encode()
    else:
        reach("reply")
        check(reply)


# ---------------------------------------------------------------- calls


def test_new_id_begins_a_call_though_every_index_is_0() -> None:
    assert called(fragment('{"n": 1}', "a", index=0, id="1"), fragment('{"n": 2}', "a", index=0, id="2")) == [
        ("a", {"n": 1}),
        ("a", {"n": 2}),
    ]


def test_new_name_begins_a_call_without_id_or_index() -> None:
    assert called(fragment("{", "a"), fragment("}"), fragment('{"n": 2}', "b")) == [
        ("a", {}),
        ("b", {"n": 2}),
    ]


def test_same_name_after_whole_arguments_is_another_call() -> None:
    assert called(fragment('{"n": 1}', "a", id="x"), fragment('{"n": 2}', "a", id="x")) == [
        ("a", {"n": 1}),
        ("a", {"n": 2}),
    ]


def test_repeated_id_and_name_in_fragments_continue_their_call() -> None:
    assert called(
        *(fragment(piece, "launch", index=0, id="x") for piece in ('{"why": "a }', ' {\\"', '", "n": 2}'))
    ) == [("launch", {"why": 'a } {"', "n": 2})]


def test_name_in_pieces_is_one_name() -> None:
    assert called(fragment("", "launch_", index=0), fragment('{"n": 1}', "instances", index=0)) == [
        ("launch_instances", {"n": 1})
    ]


def test_id_that_comes_late_belongs_to_its_call() -> None:
    assert called(fragment("{", "a", index=0), fragment("}", index=0, id="late")) == [("a", {})]


def test_parallel_streamed_calls_are_distinguished_by_index() -> None:
    assert called(
        fragment("", "a", index=0, id="1"), fragment("", "b", index=1, id="2"),
        fragment('{"n":', index=0), fragment('{"m":', index=1), fragment("1}", index=0), fragment("2}", index=1),
    ) == [("a", {"n": 1}), ("b", {"m": 2})]  # fmt: skip


def test_arguments_that_come_as_an_object_are_taken() -> None:
    assert called(fragment({"n": 1}, "a")) == [("a", {"n": 1})]


@pytest.mark.parametrize("odd", [7, None, [], {"function": 7}, "launch"])
def test_invalid_fragment_is_a_call_that_is_not_run(odd: Any) -> None:
    assert called(delta(tool_calls=[odd])) == [("unnamed", None)]


def test_wrongly_assembled_call_is_not_run() -> None:
    reply = read(said(fragment('{"a": 1}', "x"), fragment('{"b": 2}'), END))
    (call,) = reply.decision.calls
    assert call.arguments is None
    assert "not JSON" in call.problem


# ---------------------------------------------------------------- ends


def test_stream_without_its_last_line_is_whole_after_last_word() -> None:
    assert read(said(delta(content="Well."), END, done=False)).decision.text == "Well."


@pytest.mark.parametrize("done", [True, False])
def test_stream_without_its_last_word_is_not_an_answer(*, done: bool) -> None:
    with pytest.raises(BrokenStream, match="broke off"):
        read(said(fragment('{"n": 1}', "a"), done=done))


def test_cut_answer_runs_no_call() -> None:
    reply = read(said(fragment('{"n": 1}', "a"), delta("length")))
    assert (reply.finish, reply.decision.calls[0].problem) == ("length", "truncated")


@pytest.mark.parametrize(
    "chunk",
    [
        {"error": {"message": "slow down", "code": 429}},
        {"object": "error", "message": "slow down", "code": 429},
        {"choices": [{"index": 0, "error": {"message": "slow down", "code": 429}}]},
    ],
)
def test_error_in_the_middle_raises_that_error(chunk: Any) -> None:
    with pytest.raises(ModelUnavailable, match="429: slow down"):
        read(said(delta(content="Let me"), chunk, END))


@pytest.mark.parametrize(
    "lines",
    ['error: {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 9000}',
     'event: error\ndata: {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 9000}'],
)  # fmt: skip
def test_error_event_raises_that_error(lines: str) -> None:
    with pytest.raises(ContextOverflow) as raised:
        read([f"{lines}\n\n".encode()])
    assert raised.value.tokens == 9000


@pytest.mark.parametrize("chunk", ["{", "<html>", "null", "[1]", "7"])
def test_part_that_is_not_an_object_invalidates_the_answer(chunk: str) -> None:
    with pytest.raises(BrokenStream, match="not a JSON object"):
        read(said(delta(content="Well."), chunk, END))


# ---------------------------------------------------------------- other oddities


def test_usage_may_come_last_first_in_the_choice_or_never() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    last = {"choices": [], "usage": usage}
    in_choice = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": usage}]}
    for chunks in ((END, last), (last, END), (in_choice,)):
        assert read(said(delta(content="Well."), *chunks)).usage.prompt_tokens == 7
    assert read(said(delta(content="Well."), END)).usage.prompt_tokens is None


def test_chunks_without_choices_and_of_other_answers_say_nothing() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "No."}}]}
    assert (
        read(said({"choices": []}, {"choices": None}, {}, other, delta(content="Well."), END)).decision.text
        == "Well."
    )


def test_events_without_an_empty_line_between_them_are_two() -> None:
    text = f"data: {json.dumps(delta(content='We'))}\ndata: {json.dumps(delta('stop', content='ll.'))}\ndata: [DONE]\n"
    assert read([text.encode()]).decision.text == "Well."


def test_thought_tag_that_was_cut_in_two_is_removed() -> None:
    assert (
        read(said(delta(content="<thi"), delta(content="nk>hm</think>Well."), END)).decision.text == "Well."
    )


def test_answer_without_a_stream_is_read_as_a_whole() -> None:
    with pytest.raises(ModelUnavailable, match="a web page"):
        read([b"<html><body>Welcome</body></html>"])
    with pytest.raises(ModelUnavailable, match="empty body"):
        read([b""])


def test_stream_in_single_bytes_takes_linear_time() -> None:
    stream = Stream()
    line = b"data: " + json.dumps(delta(content="x" * 60_000)).encode()
    for byte in line:
        stream.feed(bytes([byte]))
    stream.feed(f"\n\ndata: {json.dumps(END)}\n\n".encode())
    whole = stream.close()
    assert whole is not None
    assert len(read_reply(whole, completion_tokens_max=TOKENS_MAX).decision.text) == 60_000
