"""The model without a language model: a pack's own deterministic decisions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anchorwatch.core.agents import RULES
from anchorwatch.core.memo import ByIdentity, OfEach
from anchorwatch.models.port import (
    TOOLS_REMEMBERED,
    WHOLE_PASTS_REMEMBERED,
    Chat,
    ModelReply,
    ModelRequest,
    OnRetry,
    Situation,
    StepDecision,
    ignore,
)

CHARS_A_TOKEN = 3.0
"""Fewer than prose and JSON have (about 4), so that a request within this budget usually fits a language model too."""
FRAME_CHARS = 12
"""Around each message and call."""


class RulesModel:
    """Calls the pack's rules. Nothing is sent anywhere, and equal situations get equal decisions."""

    name = RULES
    is_llm = False

    def __init__(self, pack_rules: Callable[[Situation], StepDecision]) -> None:
        self._rules = pack_rules

    def count(self, request: ModelRequest) -> int:
        """Tokens estimated by length, so that a session's budget is about the same as with a language model.

        Nothing is sent, so the exact number does not matter; counting it would take a tenth of the CPU of a turn.
        """
        messages = sum(map(_chars, (*request.opening, *request.now)))
        past = _chars_of_past(request.past)
        return math.ceil((messages + sum(past) + _chars_of_tools(request.tools)) / CHARS_A_TOKEN)

    async def complete(
        self,
        request: ModelRequest,
        deadline_s: float,  # noqa: ARG002 - rules take no time
        on_retry: OnRetry = ignore,  # noqa: ARG002 - and are never retried
    ) -> ModelReply:
        """Decide. Exceptions of the pack's rules propagate: they are faults of the pack."""
        decision = self._rules(request.situation)
        return ModelReply(decision, model=RULES, finish="tool_calls" if decision.calls else "stop")

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _chars(message: Chat) -> int:
    calls = message.get("tool_calls", ())
    functions = (call["function"] for call in calls)
    called = sum(FRAME_CHARS + len(each["name"]) + len(each["arguments"]) for each in functions)
    return FRAME_CHARS + len(message.get("content") or "") + called


def _whole(messages: Sequence[Chat]) -> int:
    return sum(map(_chars, messages))


def _schemas(tools: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(json.dumps(tool, ensure_ascii=False)) for tool in tools)


_chars_of_past: OfEach[Sequence[Chat], int] = OfEach(_whole, WHOLE_PASTS_REMEMBERED)
_chars_of_tools: ByIdentity[Sequence[Mapping[str, Any]], int] = ByIdentity(_schemas, TOOLS_REMEMBERED)
