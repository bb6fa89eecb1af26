"""Validates every field of a chat.completions answer: the SDK validates nothing, and servers send anything.

The result is safe to record and to evaluate: clean strings, bounded lengths, arguments that are strict JSON objects or None.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anchorwatch.models.arguments import BadArguments, read_arguments
from anchorwatch.models.faults import URL_HINT, Redact, fault_of, looks_like_html, names_an_error, parse_body
from anchorwatch.models.json_calls import read_answer
from anchorwatch.models.port import (
    ModelRefused,
    ModelReply,
    ModelUnavailable,
    ProposedCall,
    StepDecision,
)
from anchorwatch.models.request import RAW_CHARS_MAX
from anchorwatch.models.text import brief, clean, redact, without
from anchorwatch.models.thinking import strip_thinking
from anchorwatch.models.usage import Usage, read_usage

CALLS_MAX = 64
LABEL_CHARS_MAX = 128
FINISH_CHARS_MAX = 32
TRUNCATED = "truncated"
UNNAMED = "unnamed"
LENGTH_HINT = "raise ANCHORWATCH_COMPLETION_TOKENS_MAX: the answer was truncated before any content"

ONE_AT_A_TIME = "one call at a time: repeat this call after the first one's result"

_REASONING_FIELDS = ("reasoning_content", "reasoning")
_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}")
_CUT = {"length", "max_tokens", "max_output_tokens", "model_length"}


@dataclass(frozen=True, slots=True)
class Form:
    """The allowed form of an answer. ``json``: its text is JSON of our schema; ``one_call``: a step has one call."""

    json: bool = False
    one_call: bool = False
    reasoning_field: str = ""
    overflow_words: str = ""


NATIVE = Form()


class EmptyAnswer(ModelUnavailable):
    """The answer is empty: no text, no call."""


def read_reply(
    content: bytes,
    *,
    completion_tokens_max: int,
    form: Form = NATIVE,
    redact: Redact = redact,
    secret: str = "",
    place: str = "the endpoint",
) -> ModelReply:
    """The validated answer of status 200.

    ``completion_tokens_max``: the requested limit; an answer that long was truncated, whatever its label. A truncated
    answer has finish ``length``. ``form``: its allowed form. ``secret``: the key that was sent; it is removed, because an
    answer that repeats it would be recorded and sent again as history.

    Raises:
        EmptyAnswer: the answer is empty.
        ModelUnavailable: it is not a valid answer.
        ModelRefused, ContextOverflow: it is such an error.
    """
    body = parse_body(without(content, secret))
    if isinstance(body, str):
        raise _unusable_text(body, place)
    if not isinstance(body, Mapping):
        raise ModelUnavailable(f"{place} answered with JSON that is not an object")
    if names_an_error(body):
        fault = fault_of(200, body, redact=redact, place=place, words=form.overflow_words)
        fault.usage = read_usage(body["usage"]) if body.get("usage") else None
        raise fault
    try:
        return _read_answer(body, completion_tokens_max, form, redact, place)
    except (ModelUnavailable, ModelRefused) as fault:
        # A discarded answer is paid for all the same (INV-622).
        fault.usage = _usage(body)
        raise


def _read_answer(
    body: Mapping[str, Any], completion_tokens_max: int, form: Form, redact: Redact, place: str
) -> ModelReply:
    """The reply in the body of an answer. Errors as `read_reply`."""
    choice = _first_choice(body, place)
    if choice.get("error"):
        raise fault_of(200, choice, redact=redact, place=place, words=form.overflow_words)
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise ModelUnavailable(f"{place} answered with a choice without a message")
    usage = _usage(body)
    finish = _finish(choice.get("finish_reason"), usage, completion_tokens_max)
    text, calls = _said(message, form, cut=finish == "length", place=place)
    if not text and not calls:
        raise _nothing_said(finish, place, thought=_only_thought(message, form))
    model = body.get("model")
    return ModelReply(
        StepDecision(text, calls),
        usage,
        model=brief(model, LABEL_CHARS_MAX) if isinstance(model, str) else "",
        finish=finish or ("tool_calls" if calls else "stop"),
    )


def _usage(body: Mapping[str, Any]) -> Usage:
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return read_usage(body.get("usage"), first.get("message") if isinstance(first, Mapping) else None)


def _unusable_text(body: str, place: str) -> ModelUnavailable:
    if not body.strip():
        return ModelUnavailable(f"{place} answered with an empty body")
    if looks_like_html(body):
        return ModelUnavailable(f"{place} answered with a web page", hint=URL_HINT)
    fault = ModelUnavailable(f"{place} answered with something that is not JSON", hint=URL_HINT)
    if body.lstrip().startswith("{"):
        # Probably an answer that was truncated.
        fault.usage = read_usage(None, body)
    return fault


def _nothing_said(finish: str, place: str, *, thought: bool) -> ModelUnavailable | ModelRefused:
    if finish == "content_filter":
        return ModelRefused(
            f"{place} withheld the answer (content_filter)",
            hint="its content filter refuses this conversation",
        )
    hint = LENGTH_HINT if finish == "length" else ""
    what = "only with thinking, and" if thought else "with"
    return EmptyAnswer(
        f"{place} answered {what} neither text nor a tool call (finish: {finish or 'none'})", hint=hint
    )


def _only_thought(message: Mapping[str, Any], form: Form) -> bool:
    fields = (form.reasoning_field, *_REASONING_FIELDS)
    return any(message.get(field) for field in fields) or (not form.json and bool(message.get("content")))


def _first_choice(body: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise ModelUnavailable(
            f"{place} answered without choices", hint="" if "choices" in body else URL_HINT
        )
    if not isinstance(choices[0], Mapping):
        raise ModelUnavailable(f"{place} answered with a choice that is not an object")
    return choices[0]


def _finish(reason: object, usage: Usage, completion_tokens_max: int) -> str:
    """The finish reason; `length` for every truncated answer."""
    said = brief(reason, FINISH_CHARS_MAX) if isinstance(reason, str) else ""
    reached = usage.completion_tokens is not None and usage.completion_tokens >= completion_tokens_max
    return "length" if reached or said.lower() in _CUT else said


def _said(
    message: Mapping[str, Any], form: Form, *, cut: bool, place: str
) -> tuple[str, tuple[ProposedCall, ...]]:
    """Text and calls of a message."""
    content = _content(message, place)
    sent = _sent_calls(message, place)
    if form.json and content and not sent:
        try:
            answer = read_answer(content)
        except BadArguments as error:
            problem = TRUNCATED if cut else clean(str(error))
            return "", (ProposedCall(UNNAMED, None, raw=_raw(content), problem=problem),)
        text, sent = answer.text, answer.calls
    else:
        text = strip_thinking(content)
    refusal = message.get("refusal")
    # A refusal is an answer: the turn ends with it, and a person reads it.
    text = text or (clean(refusal).strip() if isinstance(refusal, str) and not sent else "")
    return text, _calls(sent, cut=cut, one=form.one_call)


def _content(message: Mapping[str, Any], place: str) -> str:
    """The text of a message, including any thinking in it."""
    content = message.get("content")
    match content:
        case None:
            return ""
        case str():
            return clean(content)
        case list():
            return clean("".join(_part(part) for part in content))
        case {"text": str(text)}:
            return clean(text)
        case _:
            raise ModelUnavailable(
                f"{place} answered with content of an unknown shape ({type(content).__name__})"
            )


def _part(part: object) -> str:
    match part:
        case str():
            return part
        case {"type": "thinking" | "reasoning" | "reasoning_text"}:
            return ""
        case {"text": str(text)} | {"refusal": str(text)}:
            return text
        case _:
            return ""


def _sent_calls(message: Mapping[str, Any], place: str) -> list[Any]:
    sent = message.get("tool_calls")
    if not sent:
        legacy = message.get("function_call")
        sent = [{"function": legacy}] if isinstance(legacy, Mapping) else []
    if not isinstance(sent, list):
        raise ModelUnavailable(f"{place} answered with tool calls that are not a list")
    return sent


def _calls(sent: list[Any], *, cut: bool, one: bool) -> tuple[ProposedCall, ...]:
    problem = ""
    if cut:
        problem = TRUNCATED
    elif len(sent) > CALLS_MAX:
        problem = f"{len(sent)} calls in one step exceed the limit of {CALLS_MAX}; none was run"
    later = problem or (ONE_AT_A_TIME if one else "")
    return tuple(_call(call, later if n else problem) for n, call in enumerate(sent[:CALLS_MAX]))


def _call(sent: object, problem: str) -> ProposedCall:
    """One call. ``problem``: why it may not run, if so."""
    function = sent.get("function") if isinstance(sent, Mapping) else None
    if not isinstance(sent, Mapping) or not isinstance(function, Mapping):
        return ProposedCall(UNNAMED, None, raw=_raw(sent), problem=problem or "the call names no function")
    said_id, name, arguments = sent.get("id"), function.get("name"), function.get("arguments")
    label = brief(said_id, LABEL_CHARS_MAX) if isinstance(said_id, str) else ""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return ProposedCall(
            UNNAMED, None, label, _raw(sent), problem or "the name of the tool cannot be read"
        )
    if problem:
        return ProposedCall(name, None, label, _raw(arguments), problem)
    try:
        return ProposedCall(name, read_arguments(arguments), label)
    except BadArguments as error:
        return ProposedCall(name, None, label, _raw(arguments), clean(str(error)))


def _raw(value: object) -> str:
    """What the model sent, at most 800 characters."""
    if not isinstance(value, str):
        try:
            value = "" if value is None else json.dumps(value, ensure_ascii=False)
        except (ValueError, RecursionError):
            value = ""
    return clean(value[:RAW_CHARS_MAX])
