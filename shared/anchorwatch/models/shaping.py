"""Shapes a request for one endpoint by its profile. The shaped request is both counted and sent. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from anchorwatch.core.memo import ByIdentity
from anchorwatch.models import json_calls
from anchorwatch.models.port import TOOLS_REMEMBERED, Chat, ModelRequest
from anchorwatch.models.profile import Profile
from anchorwatch.models.request import NUDGE, JsonObject, prepare
from anchorwatch.models.schemas import plain

Tools = Sequence[Mapping[str, Any]]


def answers_in_json(profile: Profile, request: ModelRequest) -> bool:
    """Whether the answer will be JSON of a schema: only where there are tools to call."""
    return profile.calls == "json-schema" and bool(request.tools)


def shaped(profile: Profile, request: ModelRequest) -> ModelRequest:
    """The request with its messages and schemas as sent; for JSON answers, ``tools`` is the one format.

    Each stretch that stays the same in later requests stays the same object, so that it is counted once.
    """
    if profile.calls == "native":
        return request if profile.bounds else replace(request, tools=_plain_tools(request.tools))
    opening, tools = json_calls.rendered(request.opening), request.tools
    now, past = json_calls.rendered(request.now), tuple(map(json_calls.rendered_past, request.past))
    if tools:
        format_, text = _format_of(tools)[profile.parallel, profile.json_form]
        tools = format_
        if opening:
            opening = _with_tools(opening, text)
        elif now:
            now = _with_tools(now, text)
    return replace(request, opening=opening, past=past, now=now, tools=tools)


def body_of(profile: Profile, request: ModelRequest) -> JsonObject:
    """The body's messages, and its tools or answer format."""
    sent = shaped(profile, request)
    messages, tools = prepare(sent.messages, sent.tools)
    if profile.null_content:
        messages = list(map(_null_content, messages))
    if profile.alternate:
        messages = _alternating(messages)
    body: JsonObject = {**profile.extra, "messages": messages}
    if answers_in_json(profile, request):
        body["response_format"] = tools[0]
    elif tools:
        body["tools"] = tools
        if not profile.parallel:
            body["parallel_tool_calls"] = False
    return body


def nudged(profile: Profile, messages: list[JsonObject]) -> list[JsonObject]:
    """The messages with a nudge for an answer. Its tokens are part of `tokens.REQUEST_TOKENS`."""
    more = [*messages, {"role": "user", "content": NUDGE}]
    return _alternating(more) if profile.alternate else more


def _alternating(messages: list[JsonObject]) -> list[JsonObject]:
    """The messages with consecutive plain ones of one role merged. The token count never grows."""
    joined: list[JsonObject] = []
    for message in messages:
        if joined and _is_plain(message) and _is_plain(joined[-1]) and joined[-1]["role"] == message["role"]:
            joined[-1] = {**joined[-1], "content": f"{joined[-1]['content']}\n\n{message['content']}"}
        else:
            joined.append(message)
    return joined


def _is_plain(message: JsonObject) -> bool:
    return message.keys() == {"role", "content"} and isinstance(message["content"], str)


def _with_tools(messages: tuple[Chat, ...], text: str) -> tuple[Chat, ...]:
    first = messages[0]
    if first.get("role") != "system":
        return ({"role": "system", "content": text.rstrip()}, *messages)
    return ({**first, "content": f"{text}{first.get('content') or ''}"}, *messages[1:])


def _null_content(message: JsonObject) -> JsonObject:
    if message.get("role") == "assistant" and message.get("tool_calls") and not message.get("content"):
        return {**message, "content": None}
    return message


def _plain_tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool["function"]
    return {**tool, "function": {**function, "parameters": plain(function.get("parameters", {}))}}


_plain_tools: ByIdentity[Tools, tuple[Mapping[str, Any], ...]] = ByIdentity(
    lambda tools: tuple(map(_plain_tool, tools)), TOOLS_REMEMBERED
)


def _formats(tools: Tools) -> dict[tuple[bool, str], tuple[tuple[JsonObject], str]]:
    """Cache by (several calls allowed, schema form): (answer format, tools as text)."""
    return {
        (parallel, form): (
            (json_calls.response_format(tools, parallel=parallel, form=form),),
            json_calls.tools_text(tools, parallel=parallel),
        )
        for parallel in (False, True)
        for form in ("json_schema", "json_object")
    }


_format_of: ByIdentity[Tools, dict[tuple[bool, str], tuple[tuple[JsonObject], str]]] = ByIdentity(
    _formats, TOOLS_REMEMBERED
)
