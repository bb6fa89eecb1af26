"""A hypothesis strategy of bodies: correct answers of chat.completions with random defects."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

GOOD: list[dict[str, Any]] = [
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "test-model",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": "<think>hm</think>I will `<think>` launch.",
                    "tool_calls": [
                        {
                            "id": "1",
                            "type": "function",
                            "function": {"name": "launch", "arguments": '{"count": 2, "why": "dead"}'},
                        },
                        {
                            "id": "2",
                            "type": "function",
                            "function": {"name": "stop", "arguments": '{"id": "w-1"}'},
                        },
                    ],
                },
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    },
    {
        "choices": [
            {"finish_reason": "stop", "message": {"content": [{"type": "text", "text": "All is well."}]}}
        ],
        "usage": None,
    },
    {"error": {"message": "slow down", "type": "rate_limit", "code": 429}},
]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        [
            "",
            "{}",
            "[]",
            "null",
            "length",
            "\ud800",
            "\0",
            "<think>",
            "</think>",
            '{"a": NaN}',
            "x" * 3000,
            10**30,
        ]
    )
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
)


@st.composite
def mutated_json(draw: Callable[[st.SearchStrategy[Any]], Any]) -> bytes:
    """A good answer with up to four of its members replaced, removed or repeated."""
    body = json.loads(json.dumps(draw(st.sampled_from(GOOD))))
    for _ in range(draw(st.integers(0, 4))):
        holder, key = draw(st.sampled_from(_members(body)))
        change = draw(st.sampled_from(["replace", "remove", "repeat"]))
        if change == "replace":
            holder[key] = draw(values)
        elif change == "remove":
            del holder[key]
        elif isinstance(holder, list):
            holder.extend([holder[key]] * draw(st.sampled_from([1, 100])))
        else:
            holder[draw(st.text(max_size=6))] = holder[key]
        if not body:
            break
    return json.dumps(body).encode()


@st.composite
def mutated_bytes(draw: Callable[[st.SearchStrategy[Any]], Any]) -> bytes:
    """The bytes of an answer, truncated, changed, or with a prefix."""
    body = bytearray(draw(mutated_json()))
    for _ in range(draw(st.integers(0, 3))):
        if body:
            body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    start = draw(st.sampled_from([b"", b"\xef\xbb\xbf", b"data: ", b"\n\n", b"<html>"]))
    whole: bytes = start + bytes(body[: draw(st.integers(0, len(body)))])
    return whole


bodies = mutated_json() | mutated_bytes() | st.binary(max_size=200)


def _members(value: Any) -> list[tuple[Any, Any]]:
    """Each place in the value that can be changed: (container, key or index)."""
    if isinstance(value, dict):
        keys: list[Any] = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    else:
        return []
    return [(value, key) for key in keys] + [member for key in keys for member in _members(value[key])]
