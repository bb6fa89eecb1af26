"""The tool ``schedule_next_check``, for any pack: be woken again sooner than by the heartbeat.

The record is the effect: the planner reads it at the end of the turn and sets the session's next check. So a later call of the
turn replaces an earlier one, and what an earlier turn had asked for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from anchorwatch.core.errors import BadInput
from anchorwatch.core.times import from_iso, instant
from anchorwatch.core.tools import EffectClass, Risk, ToolSpec
from anchorwatch.packs.port import NeverDone, ToolContext, ToolResult

NAME = "schedule_next_check"
S_MIN = 5.0
"""Shortest delay; an earlier request waits this long, so that no agent keeps itself busy."""
MINUTES_MAX = 24 * 60
REASON_CHARS_MAX = 120
MINUTE_S = 60
INSTANT = "2026-03-17T19:01:43Z"
_FROM_NOW = re.compile(
    r"(?:in )?([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(s|sec|seconds?|m|min|minutes?|h|hours?|)", re.IGNORECASE
)
"""A number without a unit is minutes."""
_UNITS_S = {"s": 1, "m": MINUTE_S, "": MINUTE_S, "h": 60 * MINUTE_S}


def next_check_tool() -> ToolSpec:
    """The tool, as the planner offers it and the executor judges it."""
    return ToolSpec(
        name=NAME,
        description=(
            "Be woken again, to check a result: after a time, or at an instant. It replaces what was "
            "scheduled before. Where the heartbeat looks earlier anyway, nothing is scheduled and the answer says so."
        ),
        parameters={
            "type": "object",
            "properties": {
                "when": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 40,
                    "description": f"how long from now, such as 2 min, 30 s or 1 h; or an instant, such as {INSTANT}",
                },
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": REASON_CHARS_MAX,
                    "description": "what to look for then",
                },
            },
            "required": ["when", "reason"],
            "additionalProperties": False,
        },
        effect_class=EffectClass.IDEMPOTENT,
        risk=Risk.NONE,
        observation_age_max_s=math.inf,
        example={"when": "2 min", "reason": "whether the new instances work"},
    )


def schedule_next_check(args: Mapping[str, Any], context: ToolContext) -> ToolResult:
    """Ask for the next check.

    Raises:
        NeverDone: it is not said when, or it is past, or too far away.
    """
    in_s = max(_wanted_s(args["when"].strip(), context.now_ms), S_MIN)
    if in_s >= context.heartbeat_s:
        text = f"Nothing was scheduled: the heartbeat looks every {_duration(context.heartbeat_s)} anyway, which is sooner"
        return ToolResult(text, {"scheduled": False})
    at_ms = context.now_ms + round(in_s * 1000)
    clock = instant(at_ms).strftime("%H:%M:%SZ")
    return ToolResult(
        f"Next check in {_duration(in_s)}, at {clock}: {args['reason']}",
        {"scheduled": True, "next_check_at_ms": at_ms},
    )


def _wanted_s(when: str, now_ms: int) -> float:
    """Seconds from now."""
    told = _FROM_NOW.fullmatch(when)
    in_s = float(told[1]) * _UNITS_S[told[2][:1].lower()] if told else _until_s(when, now_ms)
    if in_s > MINUTES_MAX * MINUTE_S:
        raise NeverDone(f"{when} is more than {MINUTES_MAX // MINUTE_S} hours away")
    return in_s


def _until_s(when: str, now_ms: int) -> float:
    try:
        in_s = (from_iso(when) - now_ms) / 1000
    except BadInput as error:
        raise NeverDone(f"{error}; say when as a time from now, such as 2 min, or as {INSTANT}") from None
    if in_s <= 0:
        now = instant(now_ms).strftime("%Y-%m-%dT%H:%M:%SZ")
        raise NeverDone(f"{when} is past: it is {now}")
    return in_s


def _duration(seconds: float) -> str:
    return f"{seconds / MINUTE_S:g} min" if seconds >= MINUTE_S else f"{seconds:g} s"
