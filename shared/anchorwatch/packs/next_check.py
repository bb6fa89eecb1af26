"""The tool ``schedule_next_check``, for any pack: be woken again sooner than by the heartbeat.

The record is the effect: the planner reads it at the end of the turn and sets the session's next check. So a later call of the
turn replaces an earlier one, and what an earlier turn had asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from anchorwatch.core.errors import BadInput
from anchorwatch.core.times import from_iso, instant
from anchorwatch.core.tools import EffectClass, Risk, ToolSpec
from anchorwatch.packs.port import NeverDone, ToolContext, ToolResult

NAME = "schedule_next_check"
S_MIN = 5.0
"""What is asked for sooner comes after this long, so that no agent keeps itself busy."""
MINUTES_MAX = 24 * 60
REASON_CHARS_MAX = 120
MINUTE_S = 60


def tool_spec() -> ToolSpec:
    """The tool, as the planner offers it and the executor judges it."""
    return ToolSpec(
        name=NAME,
        description=(
            "Be woken again, to see what became of something: after some minutes, or at an instant. It replaces what was "
            "scheduled before. Where the heartbeat looks earlier anyway, nothing is scheduled and the answer says so."
        ),
        parameters={
            "type": "object",
            "properties": {
                "in_minutes": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": MINUTES_MAX,
                    "description": "minutes from now; 0.5 is half a minute. Give this, or at",
                },
                "at": {
                    "type": "string",
                    "maxLength": 40,
                    "description": "an instant with its offset, such as 2026-03-17T19:01:43Z. Give this, or in_minutes",
                },
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": REASON_CHARS_MAX,
                    "description": "what to look for then",
                },
            },
            "required": ["reason"],
            "additionalProperties": False,
        },
        effect_class=EffectClass.IDEMPOTENT,
        risk=Risk.NONE,
        observation_age_max_s=math.inf,
        example={"in_minutes": 2, "reason": "whether the new instances work"},
    )


def schedule_next_check(args: Mapping[str, Any], context: ToolContext) -> ToolResult:
    """Ask for the next check.

    Raises:
        NeverDone: it is not said when, or said twice, or it is past, or too far away.
    """
    in_s = max(_wanted_s(args, context.now_ms), S_MIN)
    if in_s >= context.heartbeat_s:
        text = f"Nothing was scheduled: the heartbeat looks every {_duration(context.heartbeat_s)} anyway, which is sooner"
        return ToolResult(text, {"scheduled": False})
    at_ms = context.now_ms + round(in_s * 1000)
    clock = instant(at_ms).strftime("%H:%M:%SZ")
    return ToolResult(
        f"Next check in {_duration(in_s)}, at {clock}: {args['reason']}",
        {"scheduled": True, "next_check_at_ms": at_ms},
    )


def _wanted_s(args: Mapping[str, Any], now_ms: int) -> float:
    """Seconds from now."""
    if ("in_minutes" in args) == ("at" in args):
        raise NeverDone("say when: give in_minutes, or at, and not both")
    if "in_minutes" in args:
        return float(args["in_minutes"]) * MINUTE_S
    try:
        in_s = (from_iso(str(args["at"])) - now_ms) / 1000
    except BadInput as error:
        raise NeverDone(str(error)) from None
    if in_s <= 0:
        now = instant(now_ms).strftime("%Y-%m-%dT%H:%M:%SZ")
        raise NeverDone(f"{args['at']} is past: it is {now}")
    if in_s > MINUTES_MAX * MINUTE_S:
        raise NeverDone(f"{args['at']} is more than {MINUTES_MAX // MINUTE_S} hours away")
    return in_s


def _duration(seconds: float) -> str:
    return f"{seconds / MINUTE_S:g} min" if seconds >= MINUTE_S else f"{seconds:g} s"
