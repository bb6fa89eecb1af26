"""What happened, in sentences: one entry for each journal record that a person can read.

Pure: from the record alone, so that whoever reads the journal (memory's projection, a live stream) tells the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode, decode_anchor
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import AnchorWatchError, BadInput
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.session.wakes import SCHEDULE_SOURCE
from anchorwatch.core.session.woken import waited_for
from anchorwatch.core.times import iso
from anchorwatch.topology.subjects import Register, parse_register

DAMAGED = "damaged"
TEXT_CHARS_MAX = 300

# What a decoded record of an odd shape raises when its fields are used.
ODD = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a timeline. ``kind`` is the record's, or ``damaged``; ``ids`` names what it is about."""

    sequence: int
    at_ms: int
    workspace: str
    session: str
    kind: str
    what: str
    why: str = ""
    who: str = ""
    ids: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The entry as programs get it."""
        return {
            "sequence": self.sequence,
            "at": iso(self.at_ms),
            "session": self.session,
            "kind": self.kind,
            "what": self.what,
            "why": self.why,
            "who": self.who,
            **self.ids,
        }


@dataclass(frozen=True, slots=True)
class Opened:
    """A journal message whose bytes were read and checked. ``anchor``: of the anchor register alone."""

    stored: Stored
    register: Register
    record: Record
    anchor: Anchor | None = None


def open_record(stored: Stored) -> Opened:
    """Read a message of the journal.

    Raises:
        BadInput: its subject is no register. Damaged: it cannot be trusted.
    """
    register = parse_register(stored.subject)
    if register.kind == "p.anchor":
        anchor, record = decode_anchor(stored.payload)
        return Opened(stored, register, record, anchor)
    return Opened(stored, register, decode(stored.payload))


def narrate(stored: Stored) -> Entry | None:
    """The entry of a journal message; None where it holds nothing that a person would read (a snapshot, a wake of planners).

    It never raises: a record that cannot be trusted is told as damaged.
    """
    try:
        return tell(open_record(stored))
    except AnchorWatchError as error:
        return damaged(stored, error.message)
    except ODD as error:
        return damaged(stored, f"a field is missing or odd: {error!r}")


def tell(opened: Opened) -> Entry | None:
    """As `narrate`, of a record that was read already.

    Raises:
        one of `ODD`: a field is missing, or of another type than it must be.
    """
    if opened.anchor is not None:
        return _anchor_entry(opened.stored, opened.register.ref, opened.anchor, opened.record)
    return _entry(opened.stored, opened.register, opened.record)


def damaged(stored: Stored, why: str) -> Entry:
    """The entry of a record that cannot be trusted."""
    try:
        ref = parse_register(stored.subject).ref
    except BadInput:
        ref = SessionRef("", "")
    what = f"the record at {stored.sequence} cannot be trusted"
    # An error may quote what stood in the record, and that need not be text.
    why = clip(why.encode(errors="replace").decode())
    return Entry(stored.sequence, stored.time_ms, ref.workspace, ref.session, DAMAGED, what, why)


def clip(text: object, chars_max: int = TEXT_CHARS_MAX) -> str:
    """``text`` on one line, at most so long."""
    line = " ".join(str(text).split())
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"


def _anchor_entry(stored: Stored, ref: SessionRef, anchor: Anchor, record: Record) -> Entry:
    ids: dict[str, Any] = {"generation": anchor.generation}
    if anchor.run_id:
        ids["run_id"] = anchor.run_id
    if anchor.turn is not None:
        ids["turn_id"] = anchor.turn.id
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
    who = str(record.body.get("by") or record.writer)
    return Entry(stored.sequence, record.at_ms, ref.workspace, ref.session, record.kind, what, why, who, ids)


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


def _entry(stored: Stored, register: Register, record: Record) -> Entry | None:
    body = record.body
    who = str(body.get("by") or record.writer)
    match record.kind:
        case Kind.SNAPSHOT | Kind.CONTROL | Kind.BLOCK | Kind.SWITCH | Kind.PACE | Kind.SCHEDULE:
            return None
        case Kind.INPUT:
            what, ids = _input(body), {"input_id": register.path[1]}
            why = clip(body.get("text", "")) if body["kind"] == "trigger" else _due(body, register.path[1])
        case Kind.COMMAND:
            ids = _run_ids(body) | {"call": _call(register.ref, body["run"], body["step"], body["n"])}
            what = f"{_called(body['tool'], body['args'])} was decided"
            why = _with_models(clip(body.get("head", {}).get("text", "")), body.get("head", {}))
        case Kind.COMPACTION:
            ids = {"through_run": body["summary"]["through_run"]}
            what, why = _compacted(body), clip(body.get("because", ""))
        case Kind.STEP:
            ids = {"run_id": body["run"]}
            what = f"step {body['step']['n']} asked for no call that could be run"
            why = _with_models(clip(body["step"].get("text", "")), body["step"])
        case _:
            ids = _call_ids(register)
            what, why = _told(record, register)
    return Entry(
        stored.sequence,
        record.at_ms,
        register.ref.workspace,
        register.ref.session,
        record.kind,
        what,
        why,
        who,
        ids,
    )


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


def _call(ref: SessionRef, run: int, step: int, n: int) -> str:
    return f"{ref.session}/{run}.{step}.{n}"


def _run_ids(body: Mapping[str, Any]) -> dict[str, Any]:
    return {"run_id": body["run"], "turn_id": body["turn"]}


def _call_ids(register: Register) -> dict[str, Any]:
    match register.path[0]:
        case "fx" | "late":
            call = register.call
            return {"run_id": call.run, "call": f"{register.ref.session}/{call}"}
        case "art":
            return {"artifact_id": register.path[1]}
        case "sent":
            return {"delivery_id": register.path[1]}
        case _:
            return {}
