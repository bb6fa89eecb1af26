"""What a journal record says and why it was written, each in one line. Pure: from the record alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anchorwatch.core.anchor import Anchor
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.session.commands import CRITICAL_LINES
from anchorwatch.core.session.spending import ESTIMATED
from anchorwatch.core.session.wakes import SCHEDULE_SOURCE
from anchorwatch.core.session.woken import waited_for
from anchorwatch.topology.subjects import Register

TEXT_CHARS_MAX = 300


def clip(text: object, chars_max: int = TEXT_CHARS_MAX) -> str:
    """``text`` on one line of at most ``chars_max`` characters."""
    line = " ".join(str(text).split())
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"


def brief(data: object) -> str:
    """JSON data on one line: the fields of an object, or the value."""
    if isinstance(data, Mapping):
        return clip(", ".join(f"{name}={_value(value)}" for name, value in data.items()))
    return clip(_value(data))


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


def of_anchor(anchor: Anchor, record: Record) -> tuple[str, str]:
    """(what, why) of a change of the anchor.

    Raises:
        one of `ODD`: a field is missing or has the wrong type.
    """
    why = clip(record.body.get("reason", ""))
    match record.kind:
        case Kind.CREATED:
            what = f"session created (agent {anchor.agent})"
        case Kind.ACQUIRED:
            what = f"turn {anchor.run_id} started"
            why = why or _trigger(anchor)
        case Kind.TAKEN_OVER:
            what = f"turn {anchor.run_id} taken over"
        case Kind.TURN_ENDED:
            what = f"turn {anchor.last_run_id} ended: {anchor.last_run_outcome}"
            why = _with_models(why, record.body.get("step", {}))
        case Kind.CANCELLED:
            what = f"turn {anchor.last_run_id} cancelled"
        case Kind.PAUSED | Kind.RESUMED | Kind.DELETED | Kind.QUARANTINED | Kind.REPAIRED:
            what = f"session {record.kind}"
        case (
            Kind.DIRECTIVES | Kind.STEERED | Kind.WAKES_CLEARED | Kind.RESET | Kind.RESET_UNDONE
            | Kind.INPUTS_REFUSED
        ):  # fmt: skip
            what = _order(record)
        case Kind.EMERGENCY_OBSERVED:
            what, why = f"emergency {clip(record.body['change'])}", clip(record.body["emergency"]["what"])
        case Kind.EMERGENCY_ENDED:
            what = f"emergency ended by a person: {clip(record.body['emergency']['what'])}"
        case _:
            what = f"anchor changed: {clip(record.kind)}"
    return what, why


def _trigger(anchor: Anchor) -> str:
    """The trigger of a turn that took no input: its record names only the message that the planner held."""
    woken_by = anchor.turn.woken_by if anchor.turn else 0
    return f"trigger: journal record {woken_by}" if woken_by else "trigger: periodic sweep"


def _order(record: Record) -> str:
    body = record.body
    match record.kind:
        case Kind.DIRECTIVES if body.get("which") == CRITICAL_LINES:
            return f"labelled line {'corrected' if body.get('text') else 'withdrawn'}: {clip(body['line'])}"
        case Kind.DIRECTIVES:
            return f"{clip(body.get('which', 'objectives and constraints'))} changed"
        case Kind.STEERED:
            return f"message to the running turn: {clip(body['text'])}"
        case Kind.INPUTS_REFUSED:
            return f"{_queued(body['refused']['count'])} refused"
        case Kind.WAKES_CLEARED:
            return f"{_queued(body['superseded']['count'])} discarded"
        case Kind.RESET:
            queued = _queued(body["superseded"]["count"])
            return f"conversation reset: {_count(body['archived']['turns'], 'turn')} archived, {queued} discarded"
        case _:
            return f"reset undone: {_count(body['turns'], 'archived turn')} restored"


def _queued(count: int) -> str:
    return _count(count, "queued input")


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def of_record(record: Record, register: Register) -> tuple[str, str] | None:
    """(what, why) of any other record; None for a record that is for programs only (a snapshot, a planner wake-up).

    Raises:
        one of `ODD`: as `of_anchor`.
    """
    body = record.body
    match record.kind:
        case Kind.SNAPSHOT | Kind.CONTROL | Kind.BLOCK | Kind.SWITCH | Kind.PACE | Kind.SCHEDULE:
            return None
        case Kind.INPUT:
            return _input(body), _why_input(body, register.path[1])
        case Kind.COMMAND:
            head = body.get("head", {})
            call = clip(f"{body['tool']}({brief(body['args'])})")
            return f"step {body['step']}: {call}", _with_models(clip(head.get("text", "")), head)
        case Kind.COMPACTION:
            return _compacted(body), clip(body.get("because", ""))
        case Kind.MODEL_REQUEST:
            return _discarded(body)
        case Kind.STEP:
            step = body["step"]
            return _no_call(step), _with_models(clip(step.get("text", "")), step)
        case _:
            return _effect(record, register)


def _with_models(why: str, head: Mapping[str, Any]) -> str:
    """The reason of a step, and the model that answered if it was not the first one of the agent."""
    context = head.get("context", {})
    if not context.get("in_vain"):
        return why
    failed = ", ".join(f"{name} ({code})" for name, code in context["in_vain"])
    by = f"model {context.get('model', 'unknown')}, after {failed} failed"
    return clip("; ".join(part for part in (why, by) if part))


def _no_call(step: Mapping[str, Any]) -> str:
    rejected = step.get("rejected", ())
    if not rejected:
        return f"step {step['n']}: no call"
    _, tool, _, _, problem = rejected[0]
    more = f", {len(rejected) - 1} more" if len(rejected) > 1 else ""
    return clip(f"step {step['n']}: no valid call ({tool}: {problem}{more})")


def _discarded(body: Mapping[str, Any]) -> tuple[str, str] | None:
    """A request that follows a discarded answer; any other request is for programs only."""
    usage = body.get("usage", {})
    if "prompt" not in usage:
        return None
    return f"answer discarded: {_tokens(usage)}", f"the next request goes to {clip(body['model'])}"


def _tokens(usage: Mapping[str, Any]) -> str:
    estimated = usage.get(ESTIMATED, 0)
    count = f"{usage['prompt'] + usage.get('completion', 0)} tokens"
    return f"{count}, {estimated} of them estimated" if estimated else count


def _compacted(body: Mapping[str, Any]) -> str:
    summary, (before, after) = body["summary"], body["tokens"]
    author = "the model" if summary["source"] == "model" else "rules"
    return (
        f"conversation up to run {summary['through_run']} summarized by {author}: {before} -> {after} tokens"
    )


def _effect(record: Record, register: Register) -> tuple[str, str]:
    """(what, why) of a record of executors, approvers or the notifier."""
    body = record.body
    match record.kind:
        case Kind.CLAIM:
            return f"{body['owner'][0]} started the call (attempt {body['attempt']})", ""
        case Kind.RELEASE:
            return f"{body['owner'][0]} released the call", clip(body["reason"])
        case Kind.OUTCOME:
            parts = (body.get("rule") or body.get("error"), body["text"])
            return f"{body['tool']}: {_outcome(body)}", clip(": ".join(str(part) for part in parts if part))
        case Kind.GATE_ASKED:
            return "approval requested", clip(body["rule"])
        case Kind.GATE_DECIDED:
            return f"call {'approved' if body['approved'] else 'rejected'}", ""
        case Kind.LATE:
            return "late result, recorded as evidence only", clip(body.get("text", ""))
        case Kind.ARTIFACT:
            return f"artifact {clip(body.get('name', register.path[1]))} stored", clip(
                body.get("media_type", "")
            )
        case Kind.DELIVERY_CLAIMED:
            return f"notification to {clip(body['channel'])}: sending", clip(body["title"])
        case Kind.DELIVERY:
            why = ": ".join(part for part in (body["error"], body["title"]) if part)
            return f"notification to {clip(body['channel'])}: {clip(body['state'])}", clip(why)
        case _:
            return clip(record.kind), ""


def _outcome(body: Mapping[str, Any]) -> str:
    verdict = (body.get("resolution") or {}).get("verdict")
    return f"{body['state']} as {verdict}" if verdict else str(body["state"])


def _input(body: Mapping[str, Any]) -> str:
    priority = f"P{body['priority']}"
    match body["kind"]:
        case "message":
            return f"message ({priority}): {clip(body.get('text', ''))}"
        case "trigger":
            return "turn requested"
        case "canary":
            return "canary turn queued after the reset"
        case "resolution":
            return clip(body.get("text", ""))
        case "tick" if body.get("source") == SCHEDULE_SOURCE:
            return f"schedule {body['type']}: {clip(body['text'])}"
        case "tick":
            return "debounce window ended" if body.get("type") == "tick" else "scheduled check"
        case _:
            name = ".".join(part for part in (body.get("source"), body.get("type")) if part)
            return f"event {clip(name)} ({priority})"


def _why_input(body: Mapping[str, Any], input_id: str) -> str:
    """The reason of a request, the input of a debounce window, or why no turn will take the input."""
    if "settled" in body:
        return f"{body['settled']}: {clip(body.get('why', ''))}"
    if body["kind"] == "trigger":
        return clip(body.get("text", ""))
    sequence = waited_for(input_id) if body["kind"] == "tick" else None
    return f"input at seq {sequence}" if sequence is not None else ""
