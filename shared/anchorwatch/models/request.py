"""Sanitises a request. Its result is both counted and sent.

One string in the history that no server parses would fail every later request. So the history is sanitised here, before
sending, and its stored form does not change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from anchorwatch.models.arguments import BadArguments, read_arguments
from anchorwatch.models.text import clean_json

JsonObject = dict[str, Any]

RAW_CHARS_MAX = 800
NUDGE = "Your last answer was empty. Answer now: call a tool, or say in one sentence why nothing needs to be done."


def prepare(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> tuple[list[JsonObject], list[JsonObject]]:
    """Messages and tools as sent: strings cleaned, past arguments JSON objects, no empty assistant messages."""
    sent = [_message(clean_json(message)) for message in messages]
    return [message for message in sent if not _is_empty(message)], [clean_json(tool) for tool in tools]


def _message(message: JsonObject) -> JsonObject:
    if message.get("role") == "assistant":
        if message.get("content") is None:
            # Some endpoints refuse null, others a missing key; most accept an empty string.
            message["content"] = ""
        calls = message.get("tool_calls")
        if not calls:
            # An empty list is refused by OpenAI.
            message.pop("tool_calls", None)
        elif isinstance(calls, list):
            message["tool_calls"] = [_past_call(call) for call in calls]
    return message


def _past_call(call: Any) -> Any:  # noqa: ANN401 - JSON is of any type
    """The call with arguments that every server can parse; what the model wrote is kept as data."""
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    function = call["function"]
    arguments = function.get("arguments")
    if isinstance(arguments, str) and _is_plain(arguments):
        return call
    if isinstance(arguments, dict) and _is_plain(arguments):
        text = json.dumps(arguments, ensure_ascii=False)
    else:
        text = json.dumps({"invalid_arguments": str(arguments)[:RAW_CHARS_MAX]}, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": text}}


def _is_plain(text: str | JsonObject) -> bool:
    """Whether every server reads the same object in the text, by the rule for calls that run."""
    try:
        read_arguments(text)
    except BadArguments:
        return False
    return True


def _is_empty(message: JsonObject) -> bool:
    """An assistant message with neither content nor calls: it teaches a model to answer nothing."""
    return message.get("role") == "assistant" and not message.get("content") and not message.get("tool_calls")
