"""Answers of chat.completions as servers stream them, in usual and unusual ways."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]

words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30)
names = st.from_regex(r"[a-z][a-z0-9_]{2,12}", fullmatch=True)
arguments = st.dictionaries(names, st.integers(0, 99) | words | st.lists(words, max_size=2), max_size=3)


@st.composite
def answers(draw: Draw) -> Json:
    """A well-formed whole answer: words, calls, or both; usage mostly."""
    called = draw(st.lists(st.tuples(names, arguments), max_size=3))
    content = draw(words if not called else st.none() | words)
    message: Json = {"role": "assistant", "content": content}
    if called:
        message["tool_calls"] = [
            {
                "id": f"call_{n}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(given, ensure_ascii=draw(st.booleans()))},
            }
            for n, (name, given) in enumerate(called)
        ]
    finish = "tool_calls" if called else draw(st.sampled_from(["stop", "length", "content_filter"]))
    usage = draw(st.none() | st.just({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}))
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": "chatcmpl-1", "model": "test-model", "choices": [choice], "usage": usage}


@st.composite
def streams(draw: Draw, whole: Json) -> list[bytes]:
    """The answer as one server streams it, in pieces as they arrive."""
    text = "".join(draw(_events(whole)))
    body = text.encode()
    cuts = sorted({0, len(body), *draw(st.lists(st.integers(0, len(body)), max_size=8))})
    return [body[start:end] for start, end in itertools.pairwise(cuts)]


@st.composite
def _events(draw: Draw, whole: Json) -> list[str]:
    end = draw(st.sampled_from(["\n\n", "\r\n\r\n"]))
    between = st.sampled_from(["", "", f": keep alive{end}", f"event: ping{end}"])
    chunks = draw(_chunks(whole))
    lines = [f"{draw(between)}data: {json.dumps(chunk)}{end}" for chunk in chunks]
    return [*lines, f"data: [DONE]{end}"] if draw(st.booleans()) else lines


@st.composite
def _chunks(draw: Draw, whole: Json) -> list[Json]:
    choice = whole["choices"][0]
    message = choice["message"]
    deltas: list[Json] = [{"role": "assistant", "content": draw(st.sampled_from(["", None]))}]
    deltas += [{"content": piece} for piece in _pieces(draw, message["content"] or "")]
    for number, call in enumerate(message.get("tool_calls", ())):
        deltas += [{"tool_calls": [fragment]} for fragment in _fragments(draw, number, call)]
    chunks = [_chunk(whole, delta, None) for delta in deltas]
    last = _chunk(whole, {}, choice["finish_reason"])
    if whole["usage"] is None:
        return [*chunks, last]
    if draw(st.booleans()):
        return [*chunks, {**last, "usage": whole["usage"]}]
    return [*chunks, last, {"model": whole["model"], "choices": [], "usage": whole["usage"]}]


def _chunk(whole: Json, delta: Json, finish: str | None) -> Json:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "model": whole["model"],
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        "usage": None,
    }


def _fragments(draw: Draw, number: int, call: Json) -> list[Json]:
    """A call in fragments. Only its index, id or name distinguishes it from the previous one."""
    index = {"index": draw(st.sampled_from([number, 0, None]))}
    if index["index"] is None:
        index = {}
    function = call["function"]
    has_id = draw(st.booleans())
    id_again = draw(st.booleans()) and has_id
    given = _pieces(draw, function["arguments"])
    # In pieces only if another field shows that the call is new.
    told_apart = has_id or index.get("index") == number or number == 0
    named = _pieces(draw, function["name"]) if told_apart and draw(st.booleans()) else [function["name"]]
    if any(piece == "".join(named[:n]) for n, piece in enumerate(named)):
        # A piece that repeats the previous text is indistinguishable from a repeated name.
        named = [function["name"]]
    ident = {"id": call["id"]} if has_id else {}
    first = {**index, **ident, "type": "function", "function": {"name": named[0], "arguments": ""}}
    more = [{"function": {"name": piece}} for piece in named[1:]]
    more += [{"function": {"arguments": piece}} for piece in given]
    return [first, *({**index, **(ident if id_again else {}), **each} for each in more)]


def _pieces(draw: Draw, text: str) -> Sequence[str]:
    if not text:
        return []
    cuts = sorted({0, len(text), *draw(st.lists(st.integers(1, len(text)), max_size=4))})
    return [text[start:end] for start, end in itertools.pairwise(cuts)]


mangled = st.sampled_from(["drop", "repeat", "cut", "garbage", "error", "swap"])


@st.composite
def broken(draw: Draw, whole: Json) -> list[bytes]:
    """A stream in which lines are lost, repeated, cut, exchanged, or replaced by something else."""
    lines = "".join(draw(_events(whole))).splitlines(keepends=True)
    for change in draw(st.lists(mangled, min_size=1, max_size=4)):
        at = draw(st.integers(0, max(0, len(lines) - 1)))
        match change:
            case "drop":
                del lines[at : at + 1]
            case "repeat":
                lines[at:at] = lines[at : at + 1] * draw(st.sampled_from([1, 80]))
            case "cut":
                lines[at:] = [line[: draw(st.integers(0, len(line)))] for line in lines[at : at + 1]]
            case "garbage":
                odd = [
                    '{"choices": 7}',
                    "null",
                    "[",
                    '"x"',
                    "<html>",
                    '{"choices": [{"delta": {"tool_calls": [7]}}]}',
                ]
                lines[at:at] = [f"data: {draw(st.sampled_from(odd))}\n\n"]
            case "error":
                said = [
                    'data: {"error": {"message": "slow down", "code": 429}}',
                    'error: {"code": 500}',
                    "event: error\ndata: no",
                ]
                lines[at:at] = [f"{draw(st.sampled_from(said))}\n\n"]
            case _:
                lines[at:] = lines[at:][::-1]
    return ["".join(lines).encode()]
