"""The tools of the pack.

Written for small models: each tool does one thing, says when to use it, and offers an enum for every choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from anchorwatch.packs import EffectClass, Risk, ToolSpec, next_check_tool

from anchorwatch_fleet.instances import PRIORITIES

MEMORY_POOL = "memory"
SEVERITIES = ("info", "warning", "critical")
TITLE_CHARS_MAX = 120
TEXT_CHARS_MAX = 4_000
REPORT_CHARS_MAX = 100_000
LOG_LINES_MAX = 200
BLIND = math.inf
"""For tools that do not change the fleet: they are needed most when nothing is observable, so they cite no observation."""


def _object(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON schema whose properties are all required, and no others allowed."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _text(description: str, chars_max: int) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": chars_max, "description": description}


_INSTANCE = {
    "type": "string",
    "pattern": "^w-[0-9]{1,9}$",
    "description": "the instance's id as the observation shows it, such as w-3",
}


def all_tools(fleet_limit: int) -> tuple[ToolSpec, ...]:
    """Every tool of the pack. ``fleet_limit``: instances that may live at a time."""
    return (
        ToolSpec(
            name="launch_instances",
            description=(
                "Start new worker instances. Use it when tasks are queued and too few workers serve them, above all when "
                "workers are dead. An instance loads for a few seconds before it works."
            ),
            parameters=_object(
                count={
                    "type": "integer",
                    "minimum": 1,
                    "maximum": fleet_limit,
                    "description": f"how many; live instances and these together may be at most {fleet_limit}",
                },
                launch_priority={
                    "type": "string",
                    "enum": list(PRIORITIES),
                    "description": "emergency: tasks are queued and no worker is alive; normal: any other reason",
                },
            ),
            example={"count": 2, "launch_priority": "emergency"},
            effect_class=EffectClass.IDEMPOTENT,
            risk=Risk.LOW,
            timeout_s=20.0,
        ),
        ToolSpec(
            name="stop_instance",
            description=(
                "End one instance permanently. Only for surplus capacity: never while tasks are queued and workers are dead, "
                "never the last running one."
            ),
            parameters=_object(instance_id=_INSTANCE),
            example={"instance_id": "w-3"},
            effect_class=EffectClass.IDEMPOTENT,
            risk=Risk.HIGH,
            timeout_s=20.0,
        ),
        ToolSpec(
            name="restart_instance",
            description="End one live instance and start it again under the same id. Use it for an instance that is hung.",
            parameters=_object(instance_id=_INSTANCE),
            example={"instance_id": "w-3"},
            effect_class=EffectClass.RECONCILABLE,
            risk=Risk.LOW,
            timeout_s=20.0,
        ),
        ToolSpec(
            name="instance_logs",
            description="Read the last lines of one instance's log, to learn why it ended or is slow.",
            parameters=_object(
                instance_id=_INSTANCE,
                lines={
                    "type": "integer",
                    "minimum": 1,
                    "maximum": LOG_LINES_MAX,
                    "description": "how many of the last lines",
                },
            ),
            example={"instance_id": "w-3", "lines": 50},
            effect_class=EffectClass.READ,
            risk=Risk.NONE,
            timeout_s=10.0,
            ephemeral=True,
        ),
        *_people_and_time(),
        *_memory(),
    )


def _people_and_time() -> tuple[ToolSpec, ...]:
    return (
        ToolSpec(
            name="notify_human",
            description=(
                "Notify the people in charge of something that they must know or decide. Once for each matter, not in every turn."
            ),
            parameters=_object(
                title=_text("the matter in one line", TITLE_CHARS_MAX),
                text=_text("the situation, what you did, what you need", TEXT_CHARS_MAX),
                severity={
                    "type": "string",
                    "enum": list(SEVERITIES),
                    "description": "info: good to know; warning: look soon; critical: act now",
                },
            ),
            example={
                "title": "Two workers are dead",
                "text": "w-1 and w-2 died. I launched two. Look at their logs.",
                "severity": "warning",
            },
            effect_class=EffectClass.IDEMPOTENT,
            risk=Risk.NONE,
            observation_age_max_s=BLIND,
        ),
        next_check_tool(),
        ToolSpec(
            name="save_report",
            description="Save a report for people as an immutable file (an artifact).",
            parameters=_object(
                name={
                    "type": "string",
                    "pattern": "^[a-z0-9][a-z0-9._-]{0,62}$",
                    "description": "file name, such as incident-2.md",
                },
                text=_text("the report, in Markdown", REPORT_CHARS_MAX),
            ),
            example={"name": "incident-2.md", "text": "# What happened"},
            effect_class=EffectClass.IDEMPOTENT,
            risk=Risk.NONE,
            observation_age_max_s=BLIND,
        ),
    )


def _memory() -> tuple[ToolSpec, ...]:
    """Tools that the memory service runs, by name."""
    return (
        ToolSpec(
            name="remember",
            description="Remember a lesson for later turns. Not for what the observation shows.",
            parameters=_object(
                text=_text("the lesson, understandable by itself", TEXT_CHARS_MAX),
                topic=_text("a word or two to find it by", TITLE_CHARS_MAX),
            ),
            example={"text": "Restarting a hung worker took 40 s.", "topic": "restarts"},
            effect_class=EffectClass.IDEMPOTENT,
            risk=Risk.NONE,
            pool=MEMORY_POOL,
            observation_age_max_s=BLIND,
        ),
        ToolSpec(
            name="recall",
            description="Search what was remembered in earlier turns.",
            parameters=_object(query=_text("words to look for", TITLE_CHARS_MAX)),
            example={"query": "restarts"},
            effect_class=EffectClass.READ,
            risk=Risk.NONE,
            pool=MEMORY_POOL,
        ),
        ToolSpec(
            name="read_result",
            description="Read the whole of an output, a message or your own words that are shown as an excerpt.",
            parameters=_object(
                of=_text(
                    "the text, as the header of its excerpt names it, or the artifact's id", TITLE_CHARS_MAX
                ),
                part={"type": "integer", "minimum": 1, "description": "which part, from 1"},
            ),
            example={"of": "15.2.1", "part": 1},
            effect_class=EffectClass.READ,
            risk=Risk.NONE,
            pool=MEMORY_POOL,
        ),
    )


def resource(tool: str, args: Mapping[str, Any]) -> str:
    """What a call acts on; conflicting commands of all sessions share it. Empty: it conflicts with nothing."""
    match tool:
        case "launch_instances":
            return "fleet"
        case "stop_instance" | "restart_instance" | "instance_logs":
            return f"instance/{args.get('instance_id', 'unknown')}"
        case _:
            # A check, a note, a message and a report concern only their own session or command.
            return ""
