"""What a journal record says, in a sentence, and why it was written. Pure: from the record alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anchorwatch.core.anchor import Anchor
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.session.wakes import SCHEDULE_SOURCE
from anchorwatch.core.session.woken import waited_for
from anchorwatch.topology.subjects import Register

TEXT_CHARS_MAX = 300


def clip(text: object, chars_max: int = TEXT_CHARS_MAX) -> str:
    """``text`` on one line, at most so long."""
    line = " ".join(str(text).split())
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"


def of_anchor(anchor: Anchor, record: Record) -> tuple[str, str]:
    """(what, why) of a change of the anchor.

    Raises:
        one of `ODD`: a field is missing, or of another type than it must be.
    """
    why = clip(record.body.get("reason", ""))
    match record.kind:
        case Kind.CREATED:
            what = f"the session was made for agent {anchor.agent}"
        case Kind.ACQUIRED:
            what = f"turn {anchor.run_id} began"
            why = why or _woken(anchor)
        case Kind.TAKEN_OVER:
            what = f"turn {anchor.run_id} goes on under another planner"
        case Kind.TURN_ENDED:
            what = f"turn {anchor.last_run_id} ended: {anchor.last_run_outcome}"
            why = _with_models(why, record.body.get("step", {}))
        case Kind.CANCELLED:
            what = f"turn {anchor.last_run_id} was cancelled"
        case Kind.PAUSED | Kind.RESUMED | Kind.DELETED | Kind.QUARANTINED | Kind.REPAIRED:
            what = f"the session was {record.kind}"
        case (
            Kind.DIRECTIVES | Kind.STEERED | Kind.WAKES_CLEARED | Kind.RESET | Kind.RESET_UNDONE
            | Kind.INPUTS_REFUSED
        ):  # fmt: skip
            what = _changed(record)
        case _:
            what = f"the anchor changed: {clip(record.kind)}"
    return what, why


def _woken(anchor: Anchor) -> str:
    """What woke a turn whose record does not say it in words: it holds the message alone, which need not have a line."""
    woken_by = anchor.turn.woken_by if anchor.turn else 0
    return f"woken by the message at journal sequence {woken_by}" if woken_by else "a sweep found it due"


def _changed(record: Record) -> str:
    """What a person's order, or what its limits refuse, did to the session."""
    body = record.body
    match record.kind:
        case Kind.DIRECTIVES:
            return f"the {clip(body.get('which', 'objectives and constraints'))} were changed"
        case Kind.STEERED:
            return f"a person said to the turn: {clip(body['text'])}"
        case Kind.INPUTS_REFUSED:
            return f"{_count(body['refused']['count'])} that waited were refused"
        case Kind.WAKES_CLEARED:
            return f"{_inputs(body)} that waited will not run"
        case Kind.RESET:
            archived = body["archived"]["turns"]
            return f"the conversation was reset: {archived} turn{'s' * (archived != 1)} archived, {_inputs(body)} disposed of"
        case _:
            return f"{body['turns']} turns that a reset archived were brought back"


def _inputs(body: Mapping[str, Any]) -> str:
    return _count(body["superseded"]["count"])


def _count(count: int) -> str:
    return f"{count} input{'s' * (count != 1)}"


def of_record(record: Record, register: Register) -> tuple[str, str] | None:
    """(what, why) of any other record; None where it holds nothing that a person would read (a snapshot, a wake of planners).

    Raises:
        one of `ODD`: as `of_anchor`.
    """
    body = record.body
    match record.kind:
        case Kind.SNAPSHOT | Kind.CONTROL | Kind.BLOCK | Kind.SWITCH | Kind.PACE | Kind.SCHEDULE:
            return None
        case Kind.INPUT:
            input_id = register.path[1]
            return _input(body), clip(body.get("text", "")) if body["kind"] == "trigger" else _due(
                body, input_id
            )
        case Kind.COMMAND:
            head = body.get("head", {})
            return f"{_called(body['tool'], body['args'])} was decided", _with_models(
                clip(head.get("text", "")), head
            )
        case Kind.COMPACTION:
            return _compacted(body), clip(body.get("because", ""))
        case Kind.STEP:
            step = body["step"]
            what = f"step {step['n']} asked for no call that could be run"
            return what, _with_models(clip(step.get("text", "")), step)
        case _:
            return _told(record, register)


def _with_models(why: str, head: Mapping[str, Any]) -> str:
    """Why a step was decided so, and by which model where the first one of the list did not answer."""
    context = head.get("context", {})
    if not context.get("in_vain"):
        return why
    failed = ", ".join(f"{name} ({code})" for name, code in context["in_vain"])
    by = f"decided by {context.get('model', 'another model')}, since {failed} did not answer"
    return clip("; ".join(part for part in (why, by) if part))


def _compacted(body: Mapping[str, Any]) -> str:
    summary, (before, after) = body["summary"], body["tokens"]
    author = "the model" if summary["source"] == "model" else "the records"
    return f"a summary by {author} stands for the runs up to {summary['through_run']}: {before} tokens became {after}"


def _told(record: Record, register: Register) -> tuple[str, str]:
    """(what, why) of what executors, approvers and the notifier write."""
    body = record.body
    match record.kind:
        case Kind.CLAIM:
            return f"{body['owner'][0]} took up the call (attempt {body['attempt']})", ""
        case Kind.RELEASE:
            return f"{body['owner'][0]} gave the call back", clip(body["reason"])
        case Kind.OUTCOME:
            why = ": ".join(
                str(part) for part in (body.get("rule") or body.get("error"), body["text"]) if part
            )
            return f"{body['tool']} {body['state']}", clip(why)
        case Kind.GATE_ASKED:
            return "the call waits for a person", clip(body["rule"])
        case Kind.GATE_DECIDED:
            return f"a person {'approved' if body['approved'] else 'rejected'} the call", ""
        case Kind.LATE:
            return "a result came after the call had its outcome", clip(body.get("text", ""))
        case Kind.ARTIFACT:
            return f"{clip(body.get('name', register.path[1]))} was kept", clip(body.get("media_type", ""))
        case Kind.DELIVERY_CLAIMED:
            return f"a notification goes to {clip(body['channel'])}", clip(body["title"])
        case Kind.DELIVERY:
            why = ": ".join(part for part in (body["error"], body["title"]) if part)
            return f"a notification to {clip(body['channel'])}: {clip(body['state'])}", clip(why)
        case _:
            return clip(record.kind), ""


def _input(body: Mapping[str, Any]) -> str:
    priority = f"P{body['priority']}"
    match body["kind"]:
        case "message":
            return f"a person said ({priority}): {clip(body.get('text', ''))}"
        case "trigger":
            return "a person asked for a turn"
        case "canary":
            return "a canary turn is to run behind the reset"
        case "resolution":
            return clip(body.get("text", ""))
        case "tick" if body.get("source") == SCHEDULE_SOURCE:
            return f"the schedule {body['type']} was due: {clip(body['text'])}"
        case "tick":
            return (
                "an input that waited fell due" if body.get("type") == "tick" else "the time for a check came"
            )
        case _:
            name = ".".join(part for part in (body.get("source"), body.get("type")) if part)
            return f"event {clip(name)} was accepted ({priority})"


def _due(body: Mapping[str, Any], input_id: str) -> str:
    """Which input a tick was made for: its id names the record; or why no turn is to take it."""
    if "settled" in body:
        return f"{body['settled']}: {clip(body.get('why', ''))}"
    sequence = waited_for(input_id) if body["kind"] == "tick" else None
    return f"the one at seq {sequence}" if sequence is not None else ""


def _called(tool: str, args: Mapping[str, Any]) -> str:
    given = ", ".join(f"{name}={value!r}" for name, value in args.items())
    return clip(f"{tool}({given})")
