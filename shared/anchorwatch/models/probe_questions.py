"""The requests of a probe, and the interpretation of their answers. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.core.facts import Observation
from anchorwatch.models.faults import fault_of
from anchorwatch.models.json_calls import response_format, tools_text
from anchorwatch.models.port import ContextOverflow, ModelReply, ModelRequest, Situation
from anchorwatch.models.probe_client import Answer
from anchorwatch.models.reply import NATIVE, Form, read_reply
from anchorwatch.models.request import JsonObject
from anchorwatch.models.schemas import plain as plain_schema
from anchorwatch.models.stream import BrokenStream, Stream

ANSWER_TOKENS_MAX = 2048
"""Room for a model that thinks first."""
WORDS_CHARS_MIN, WORDS_CHARS_MAX = 12, 120
TRUNCATED_SHARE = 0.8
"""A request counted below this share of its words was truncated."""

_CONTEXT_FIELDS = ("max_model_len", "context_length", "max_context_length", "loaded_context_length", "n_ctx")


def tool(name: str = "report_level") -> JsonObject:
    """A tool with everything that grammars are known to fail on: a long text, a pattern, a range."""
    parameters = {
        "type": "object",
        "properties": {
            "level": {"type": "string", "enum": ["low", "high"], "description": "how high the water is"},
            "gauge": {"type": "string", "pattern": "^g-[0-9]{1,9}$", "description": "the gauge, such as g-3"},
            "note": {"type": "string", "minLength": 1, "maxLength": 100_000, "description": "a word or two"},
        },
        "required": ["level", "gauge", "note"],
        "additionalProperties": False,
    }
    description = 'Report the level of one gauge. Example: {"level": "low", "gauge": "g-3", "note": "calm"}'
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


ONE = "Gauge g-1 reads high. Report it with the tool report_level."
TWO = "Gauge g-1 reads high and gauge g-2 reads low. Report both now: two calls of report_level in this one answer."


def plain() -> JsonObject:
    """A minimal request."""
    return {"messages": [{"role": "user", "content": "Answer with the one word: yes."}]}


def two_in_a_row() -> JsonObject:
    """A minimal request in two consecutive user messages."""
    return {"messages": [{"role": "user", "content": "I will ask something."}, *plain()["messages"]]}


def call(tools: Sequence[Mapping[str, Any]], words: str = ONE) -> JsonObject:
    """A request for a tool call."""
    return {"messages": [{"role": "user", "content": words}], "tools": list(tools)}


def history(tools: Sequence[Mapping[str, Any]], content: str | None) -> JsonObject:
    """A request whose conversation contains a call with the text ``content``."""
    function = {"name": "report_level", "arguments": '{"level": "high", "gauge": "g-1", "note": "rain"}'}
    called = {
        "role": "assistant",
        "content": content,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }
    result = {"role": "tool", "tool_call_id": "call_1", "content": "Reported."}
    return {"messages": [{"role": "user", "content": ONE}, called, result], "tools": list(tools)}  # fmt: skip


def in_json(tools: Sequence[Mapping[str, Any]], form: str) -> JsonObject:
    """A request for a call by JSON schema, in one of the two forms."""
    system = {"role": "system", "content": tools_text(tools, parallel=False)}
    asked = {"role": "user", "content": ONE}
    return {
        "messages": [system, asked],
        "response_format": response_format(tools, parallel=False, form=form),
    }


def large(words: int) -> JsonObject:
    """A request of about ``tokens`` tokens."""
    return {"messages": [{"role": "user", "content": "level " * words}]}


def without_bounds(tool: JsonObject) -> JsonObject:
    """The tool with a schema that every grammar accepts."""
    function = tool["function"]
    return {**tool, "function": {**function, "parameters": plain_schema(function["parameters"])}}


def as_request(question: JsonObject) -> ModelRequest:
    """The messages of a request, for counting."""
    nothing = Situation(0, {}, Observation("", {}, 0, ""), (), (), (), (), {}, 0)
    return ModelRequest(tuple(question["messages"]), (), nothing)


# --- answers


def reply_of(answer: Answer, form: Form = NATIVE) -> ModelReply | None:
    """The validated reply, streamed or whole; None: not a valid reply."""
    try:
        content = answer.content
        if answer.ok:
            stream = Stream()
            stream.feed(content)
            content = stream.close() or content
            return read_reply(content, completion_tokens_max=ANSWER_TOKENS_MAX, form=form)
    except (AnchorWatchError, BrokenStream):
        pass
    return None


def good_calls(reply: ModelReply | None) -> int:
    """The number of valid calls of the tool."""
    calls = reply.decision.calls if reply else ()
    return sum(each.arguments is not None and each.name == "report_level" for each in calls)


def reasoning_in(answer: Answer) -> str:
    """The field in which a model's thinking came, ``<think>`` if it is in the text; empty: none seen."""
    match answer.body:
        case {"choices": [{"message": dict(message)}, *_]}:
            field = next((name for name in ("reasoning_content", "reasoning") if message.get(name)), "")
            tagged = "</think" in str(message.get("content"))
            return field or ("<think>" if tagged else "")
        case _:
            return ""


def contexts(body: object) -> dict[str, int]:
    """The context sizes in a list of models, in tokens; 0: unknown."""
    match body:
        case {"data": list(rows)}:
            return {
                row["id"]: _context(row)
                for row in rows
                if isinstance(row, dict) and isinstance(row.get("id"), str)
            }
        case _:
            return {}


def context_in_props(body: object, model: str) -> int:
    """The context size in a llama.cpp server's ``/props``; 0: unknown."""
    del model
    match body:
        case {"default_generation_settings": {"n_ctx": int(tokens)}}:
            return max(0, tokens)
        case _:
            return 0


def context_in_ps(body: object, model: str) -> int:
    """The context size of a loaded model in Ollama's ``/api/ps``; 0: unknown."""
    rows = body.get("models") if isinstance(body, dict) else None
    for row in rows if isinstance(rows, list) else ():
        match row:
            case {"name": str(name), "context_length": int(tokens)} if name.removesuffix(":latest") == model:
                return max(0, tokens)
            case {"model": str(name), "context_length": int(tokens)} if name == model:
                return max(0, tokens)
    return 0


def _context(row: Mapping[str, Any]) -> int:
    meta = row.get("meta")
    places = (row, meta if isinstance(meta, Mapping) else {})
    found = [place[name] for place in places for name in _CONTEXT_FIELDS if isinstance(place.get(name), int)]
    return max(0, found[0]) if found else 0


@dataclass(frozen=True, slots=True)
class Overflow:
    """How an endpoint treats a request that is too large.

    ``shape`` as `Profile.overflow`; empty: it accepted the request, or the result is unclear.
    """

    shape: str = ""
    words: str = ""
    context_tokens: int = 0
    detail: str = ""


def overflow_of(answer: Answer, words: int) -> Overflow:
    """The result of a request of at least ``words`` tokens."""
    if answer.ok:
        return _taken(answer.body, words)
    fault = fault_of(answer.status, answer.body, redact=lambda text: text)
    error = answer.body.get("error", answer.body) if isinstance(answer.body, dict) else {}
    error = error if isinstance(error, dict) else {"message": error}
    known = error.get("n_ctx")
    tokens = known if isinstance(known, int) else _limit_in(fault.message)
    if isinstance(fault, ContextOverflow):
        named = {str(error.get("code")).lower(), str(error.get("type")).lower()}
        shape = (
            "type"
            if "exceed_context_size_error" in named
            else "code"
            if "context_length_exceeded" in named
            else "text"
        )
        return Overflow(shape, "", tokens, fault.message)
    if answer.status == 400:  # noqa: PLR2004 - what it refuses is this request
        return Overflow("text", _words(str(error.get("message") or answer.body)), tokens, fault.message)
    return Overflow(detail=fault.message)


def _taken(body: object, words: int) -> Overflow:
    match body:
        case {"usage": {"prompt_tokens": int(counted)}} if 0 < counted < words * TRUNCATED_SHARE:
            return Overflow(
                "silent",
                "",
                counted,
                f"it counted {counted} tokens of at least {words}: the rest was truncated",
            )
        case {"usage": {"prompt_tokens": int(counted)}}:
            return Overflow(detail=f"accepted {counted} tokens")
        case _:
            return Overflow(detail="answered without a token count")


def _limit_in(text: str) -> int:
    found = re.search(
        r"(?:maximum context length is|context (?:length|size|window) (?:of|is)|limit of) (\d{3,8})", text
    )
    return int(found[1]) if found else 0


def _words(message: str) -> str:
    """The longest constant part of a refusal: the text between its numbers."""
    parts = [part.strip(" ,.;:()'\"") for part in re.split(r"\d+", message)]
    longest = max(parts, key=len, default="")[:WORDS_CHARS_MAX]
    return longest if len(longest) >= WORDS_CHARS_MIN else ""
