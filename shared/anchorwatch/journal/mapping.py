"""Events of the session machine as records, and back. The field names are the wire format: docs/wire-format.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, assert_never

from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode, decode_anchor
from anchorwatch.core.anchor import Anchor, PromptProof
from anchorwatch.core.errors import Damaged
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.session.apply import Recorded
from anchorwatch.core.session.events import (
    AnchorChanged,
    CommandDecided,
    Compacted,
    Event,
    InputAccepted,
    ModelRequested,
    OutcomeRecorded,
    PlannerEvent,
    SnapshotTaken,
    StepDecided,
    StepHead,
)
from anchorwatch.core.session.state import Input, Summary, Unsettled
from anchorwatch.core.session.transitions import CONTROLS, TRANSITIONS
from anchorwatch.journal.effect_mapping import read_effect, read_outcome
from anchorwatch.journal.snapshots import read_seen, read_state, seen_body, state_body
from anchorwatch.topology.subjects import Register, parse_register

Body = Mapping[str, Any]
ODD_CHARS_MAX = 300


def read_session_record(stored: Stored) -> Recorded | None:
    """The session event in a journal message; None if the register does not belong to the session machine.

    Raises:
        Damaged: it cannot be trusted; the message names the sequence.
    """
    register = parse_register(stored.subject)
    try:
        return _session_event(register, stored)
    except Damaged as error:
        kind, why, hint = type(error), error.message, error.hint
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        kind, why, hint = Damaged, f"a field is missing or odd: {error!r}"[:ODD_CHARS_MAX], ""
    # An error may quote the record, which may not be text.
    why = why.encode(errors="replace").decode()
    raise kind(
        f"sequence {stored.sequence} ({register.kind}): {why}",
        hint=hint,
        sequence=stored.sequence,
        register=register.kind,
    )


def _session_event(register: Register, stored: Stored) -> Recorded | None:
    match register.kind:
        case "p.anchor":
            anchor, record = decode_anchor(stored.payload)
            event: Event = read_change(anchor, record)
            return Recorded(stored.sequence, event, record.digest, record.previous)
        case "in":
            record = decode(stored.payload)
            return Recorded(
                stored.sequence, InputAccepted(read_input(register.path[1], record, stored)), record.digest
            )
        case "p.cmd":
            record = decode(stored.payload)
            return Recorded(
                stored.sequence, read_command(register.pool, record.body), record.digest, record.previous
            )
        case "p.log":
            record = decode(stored.payload)
            return Recorded(
                stored.sequence, _read_log(record, stored.sequence), record.digest, record.previous
            )
        case "fx.done":
            record = decode(stored.payload)
            done = read_outcome(record.body)
            # The model must see which rule refused, to look for another way.
            text = f"by the rule {done.rule}: {done.text}" if done.rule else done.text
            settled = {"verdict": done.resolution.verdict} if done.resolution else {}
            outcome = OutcomeRecorded(done.call, done.state, text, {**done.data, **settled}, done.durable)
            return Recorded(stored.sequence, outcome, record.digest)
        case "fx.claim" | "fx.gate":
            # No state of the session, but what its commands wait for: who cannot read it never runs them.
            read_effect(stored)
            return None
        case _:
            return None


def _read_log(record: Record, sequence: int) -> Event:
    if record.kind == Kind.STEP:
        return StepDecided(record.body["run"], read_head(record.body["step"]), record.body["snapshot"])
    if record.kind == Kind.SNAPSHOT:
        return SnapshotTaken(read_state(record.body["state"], sequence))
    if record.kind == Kind.COMPACTION:
        return _read_compaction(record.body)
    if record.kind == Kind.MODEL_REQUEST:
        return _read_request(record.body)
    raise Damaged(f"{record.kind!r} is not a kind of log record")


def event_body(
    event: PlannerEvent,
) -> tuple[str, dict[str, Any]]:
    """(record kind, body) of a planner event; of an anchor change, the body beside the anchor."""
    match event:
        case CommandDecided():
            return Kind.COMMAND, _command_body(event)
        case StepDecided():
            return Kind.STEP, {
                "run": event.run,
                "step": head_body(event.head),
                "snapshot": event.snapshot_sequence,
            }
        case SnapshotTaken():
            return Kind.SNAPSHOT, {"state": state_body(event.state)}
        case Compacted():
            return Kind.COMPACTION, _compaction_body(event)
        case ModelRequested():
            return Kind.MODEL_REQUEST, _request_body(event)
        case AnchorChanged():
            return event.kind, _change_body(event)
        case _:
            assert_never(event)


def _change_body(event: AnchorChanged) -> dict[str, Any]:
    """The content of the record besides the anchor. The author of a planner's change is its writer."""
    body: dict[str, Any] = dict(event.more)
    if event.reason:
        body["reason"] = event.reason
    if event.head is not None:
        body["step"] = head_body(event.head)
    if event.control_id:
        body["control"] = event.control_id
    if event.kind in CONTROLS and event.by:
        body["by"] = event.by
    return body


def anchor_kind(record: Record) -> Kind:
    """The kind of an anchor record.

    Raises:
        Damaged: it is not a kind of change.
    """
    kind = next((each for each in TRANSITIONS if each == record.kind), None)
    if kind is None:
        raise Damaged(f"unknown kind of anchor record: {record.kind[:40]!r}")
    return kind


def read_change(anchor: Anchor, record: Record) -> AnchorChanged:
    """The change that an anchor record is of."""
    body = dict(record.body)
    step = body.pop("step", None)
    return AnchorChanged(
        anchor_kind(record),
        anchor,
        record.at_ms,
        reason=body.pop("reason", ""),
        by=body.pop("by", record.writer),
        head=read_head(step) if step is not None else None,
        control_id=body.pop("control", ""),
        more=body,
    )


def input_body(  # noqa: PLR0913 - the fields of the record, by name
    kind: str,
    priority: int,
    *,
    text: str = "",
    source: str = "",
    type_: str = "",
    data: object = None,
    attributes: Mapping[str, str | int] | None = None,
    body_sha256: str = "",
    by: str = "",
    expires_at_ms: int | None = None,
    settled: str = "",
    why: str = "",
) -> dict[str, Any]:
    """The body of an ``in`` record. ``data`` is the event's own data (JSON); ``body_sha256`` binds the receipt to its request.

    ``attributes``: those of a CloudEvent.

    ``settled``: the disposition that it has from the first, with ``why``; it waits for no turn.
    """
    body: dict[str, Any] = {"kind": kind, "priority": priority, "body_sha256": body_sha256}
    optional = {
        "text": text,
        "source": source,
        "type": type_,
        "data": data,
        "attributes": dict(attributes) if attributes else None,
        "by": by,
        "expires_at_ms": expires_at_ms,
        "settled": settled,
        "why": why,
    }
    return body | {name: value for name, value in optional.items() if value not in (None, "")}


def read_input(input_id: str, record: Record, stored: Stored) -> Input:
    """The input in an ``in`` record; its time is when the server stored it."""
    body = record.body
    return Input(
        sequence=stored.sequence,
        input_id=input_id,
        kind=body["kind"],
        priority=body["priority"],
        at_ms=record.at_ms,
        text=body.get("text", ""),
        source=body.get("source", ""),
        type=body.get("type", ""),
        expires_at_ms=body.get("expires_at_ms"),
        settled=body.get("settled", ""),
        why=body.get("why", ""),
        by=body.get("by", ""),
    )


def head_body(head: StepHead) -> dict[str, Any]:
    """A step's head as plain data."""
    body: dict[str, Any] = {"n": head.step, "calls": head.calls}
    if head.text:
        body["text"] = head.text
    if head.observation:
        body["observation"] = seen_body(head.observation)
    if head.prompt:
        body["prompt"] = asdict(head.prompt)
    if head.rejected:
        body["rejected"] = [list(each) for each in head.rejected]
    if head.usage:
        body["usage"] = dict(head.usage)
    if head.context:
        body["context"] = dict(head.context)
    if head.joined:
        body["joined"] = list(head.joined)
    return body


def read_head(body: Body) -> StepHead:
    """A step's head from plain data."""
    return StepHead(
        step=body["n"],
        text=body.get("text", ""),
        observation=read_seen(body.get("observation")),
        prompt=PromptProof(**body["prompt"]) if body.get("prompt") else None,
        rejected=tuple((n, tool, label, raw, why) for n, tool, label, raw, why in body.get("rejected", ())),
        calls=body["calls"],
        usage=body.get("usage", {}),
        context=body.get("context", {}),
        joined=tuple(body.get("joined", ())),
    )


def _request_body(event: ModelRequested) -> dict[str, Any]:
    body: dict[str, Any] = {
        "run": event.run,
        "model": event.model,
        "reserves": dict(event.reserves),
        "at_ms": event.at_ms,
        "snapshot": event.snapshot_sequence,
    }
    return {**body, "usage": dict(event.usage)} if event.usage else body


def _read_request(body: Body) -> ModelRequested:
    return ModelRequested(
        body["run"],
        body["model"],
        reserves=body["reserves"],
        usage=body.get("usage", {}),
        at_ms=body["at_ms"],
        snapshot_sequence=body["snapshot"],
    )


def _compaction_body(event: Compacted) -> dict[str, Any]:
    body: dict[str, Any] = {
        "summary": asdict(event.summary),
        "tokens": list(event.tokens),
        "snapshot": event.snapshot_sequence,
    }
    optional = {"because": event.because, "usage": dict(event.usage)}
    return body | {name: value for name, value in optional.items() if value}


def _read_compaction(body: Body) -> Compacted:
    before, after = body["tokens"]
    return Compacted(
        Summary(**body["summary"]),
        (before, after),
        because=body.get("because", ""),
        usage=body.get("usage", {}),
        snapshot_sequence=body["snapshot"],
    )


def _command_body(event: CommandDecided) -> dict[str, Any]:
    body: dict[str, Any] = {
        "run": event.call.run,
        "step": event.call.step,
        "n": event.call.n,
        "turn": event.turn_id,
        "generation": event.generation,
        "agent": event.agent,
        "tool": event.tool,
        "args": dict(event.args),
        "resource": event.resource,
        "label": event.label,
        "observation": [event.observation_digest, event.observation_at_ms],
        "effect_key": event.effect_key,
    }
    if event.verb:
        body["verb"] = event.verb
    if not event.mutating:
        body["mutating"] = False
    if event.after:
        body["after"] = [[each.call.run, each.call.step, each.call.n, each.pool] for each in event.after]
    return body if event.head is None else {**body, "head": head_body(event.head)}


def read_command(pool: str, body: Body) -> CommandDecided:
    """The command in a ``p.cmd.<pool>`` record."""
    digest, at_ms = body["observation"]
    return CommandDecided(
        call=CallId(body["run"], body["step"], body["n"]),
        turn_id=body["turn"],
        generation=body["generation"],
        agent=body["agent"],
        pool=pool,
        tool=body["tool"],
        args=body["args"],
        resource=body["resource"],
        label=body["label"],
        observation_digest=digest,
        observation_at_ms=at_ms,
        head=read_head(body["head"]) if "head" in body else None,
        effect_key=body.get("effect_key", ""),
        verb=body.get("verb", ""),
        mutating=body.get("mutating", True),
        after=tuple(
            Unsettled(CallId(run, step, n), earlier, body["resource"])
            for run, step, n, earlier in body.get("after", ())
        ),
    )
