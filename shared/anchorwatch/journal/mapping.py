"""Events of the machines as records, and back. The field names are the wire format: docs/wire-format.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, assert_never

from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode, decode_anchor
from anchorwatch.core.anchor import Anchor, PromptProof, read_anchor
from anchorwatch.core.effect.state import (
    Claimed,
    EffectEvent,
    GateAsked,
    GateDecided,
    Outcome,
    Owner,
    Released,
)
from anchorwatch.core.errors import Damaged
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.session.apply import Recorded
from anchorwatch.core.session.events import (
    AnchorChanged,
    CommandDecided,
    Event,
    InputAccepted,
    OutcomeRecorded,
    SnapshotTaken,
    StepDecided,
    StepHead,
)
from anchorwatch.core.session.state import Call, Input, PastTurn, SeenObservation, SessionState, Step
from anchorwatch.topology.subjects import Register, parse_register

Body = Mapping[str, Any]


# --- the session machine's events


def read_session_record(stored: Stored) -> Recorded | None:
    """The session event in a journal message; None where the register is none of the session machine's.

    Raises:
        Damaged: it cannot be trusted; the message names the sequence.
    """
    register = parse_register(stored.subject)
    try:
        return _session_event(register, stored)
    except Damaged as error:
        raise type(error)(
            f"sequence {stored.sequence} ({register.kind}): {error.message}", hint=error.hint
        ) from None
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise Damaged(
            f"sequence {stored.sequence} ({register.kind}): a field is missing or odd: {error!r}"
        ) from None


def _session_event(register: Register, stored: Stored) -> Recorded | None:
    match register.kind:
        case "p.anchor":
            anchor, record = decode_anchor(stored.payload)
            event: Event = AnchorChanged(
                record.kind,
                anchor,
                record.at_ms,
                reason=record.body.get("reason", ""),
                by=record.writer,
                head=read_head(record.body["step"]) if "step" in record.body else None,
            )
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
            outcome = OutcomeRecorded(done.call, done.state, done.text, done.data, done.durable)
            return Recorded(stored.sequence, outcome, record.digest)
        case _:
            return None


def _read_log(record: Record, sequence: int) -> Event:
    if record.kind == Kind.STEP:
        return StepDecided(record.body["run"], read_head(record.body["step"]), record.body["snapshot"])
    if record.kind == Kind.SNAPSHOT:
        return SnapshotTaken(read_state(record.body["state"], sequence))
    raise Damaged(f"{record.kind!r} is no kind of log record")


def event_body(
    event: CommandDecided | StepDecided | SnapshotTaken | AnchorChanged,
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
        case AnchorChanged():
            body: dict[str, Any] = {"reason": event.reason} if event.reason else {}
            if event.head is not None:
                body["step"] = head_body(event.head)
            return event.kind, body
        case _:
            assert_never(event)


def input_body(  # noqa: PLR0913 - the fields of the record, by name
    kind: str,
    priority: int,
    *,
    text: str = "",
    source: str = "",
    type_: str = "",
    data: object = None,
    body_sha256: str = "",
    by: str = "",
    expires_at_ms: int | None = None,
) -> dict[str, Any]:
    """The body of an ``in`` record. ``data`` is the event's own data (JSON); ``body_sha256`` binds the receipt to its request."""
    body: dict[str, Any] = {"kind": kind, "priority": priority, "body_sha256": body_sha256}
    optional = {
        "text": text,
        "source": source,
        "type": type_,
        "data": data,
        "by": by,
        "expires_at_ms": expires_at_ms,
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
    )


def head_body(head: StepHead) -> dict[str, Any]:
    """A step's head as plain data."""
    body: dict[str, Any] = {"n": head.step, "calls": head.calls}
    if head.text:
        body["text"] = head.text
    if head.observation:
        body["observation"] = asdict(head.observation)
    if head.prompt:
        body["prompt"] = head.prompt.model_dump()
    if head.rejected:
        body["rejected"] = [list(each) for each in head.rejected]
    if head.usage:
        body["usage"] = dict(head.usage)
    return body


def read_head(body: Body) -> StepHead:
    """A step's head from plain data."""
    return StepHead(
        step=body["n"],
        text=body.get("text", ""),
        observation=_read_seen(body.get("observation")),
        prompt=PromptProof.model_validate(body["prompt"]) if body.get("prompt") else None,
        rejected=tuple((n, tool, label, raw, why) for n, tool, label, raw, why in body.get("rejected", ())),
        calls=body["calls"],
        usage=body.get("usage", {}),
    )


def _read_seen(body: Body | None) -> SeenObservation | None:
    return SeenObservation(body["digest"], body["at_ms"], body["text"]) if body else None


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
    }
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
    )


# --- the snapshot


def state_body(state: SessionState) -> dict[str, Any]:
    """The folded state at rest, as plain data. Pending inputs are not in it: loading reads them anew."""
    return {
        "anchor": state.anchor.to_json() if state.anchor else None,
        "anchor_sequence": state.anchor_sequence,
        "told": state.told.to_json() if state.told and state.told_sequence != state.anchor_sequence else None,
        "told_sequence": state.told_sequence,
        "told_digest": state.told_digest,
        "head": state.head,
        "head_digest": state.head_digest,
        "read_through": state.read_through,
        "history": [asdict(past) for past in state.history],
        "critical": list(state.critical),
    }


def read_state(body: Body, sequence: int) -> SessionState:
    """The state in a snapshot record that stands at ``sequence``."""
    anchor: Anchor | None = read_anchor(body["anchor"]) if body["anchor"] else None
    return SessionState(
        anchor=anchor,
        anchor_sequence=body["anchor_sequence"],
        told=read_anchor(body["told"]) if body["told"] else anchor,
        told_sequence=body["told_sequence"],
        told_digest=body["told_digest"],
        head=body["head"],
        head_digest=body["head_digest"],
        read_through=body["read_through"],
        history=tuple(_read_past(past) for past in body["history"]),
        critical=tuple(body["critical"]),
        snapshot_sequence=sequence,
    )


def _read_past(body: Body) -> PastTurn:
    return PastTurn(
        run_id=body["run_id"],
        outcome=body["outcome"],
        reason=body["reason"],
        inputs=tuple(Input(**each) for each in body["inputs"]),
        skipped=body["skipped"],
        steps=tuple(
            Step(
                number=step["number"],
                text=step["text"],
                calls=tuple(Call(**call) for call in step["calls"]),
                observation=_read_seen(step["observation"]),
            )
            for step in body["steps"]
        ),
    )


# --- the effect machine's events


def effect_body(event: EffectEvent) -> tuple[str, str, dict[str, Any]]:
    """(register, record kind, body) of an effect event."""
    match event:
        case Claimed():
            body = {"owner": [event.owner.instance, event.owner.incarnation], "attempt": event.attempt}
            return "claim", Kind.CLAIM, {**body, "effect_key": event.effect_key}
        case Released():
            return (
                "claim",
                Kind.RELEASE,
                {"owner": [event.owner.instance, event.owner.incarnation], "reason": event.reason},
            )
        case Outcome():
            return "done", Kind.OUTCOME, _outcome_body(event)
        case GateAsked():
            return "gate", Kind.GATE_ASKED, asdict(event)
        case GateDecided():
            return "gate", Kind.GATE_DECIDED, asdict(event)
        case _:
            assert_never(event)


def read_effect(stored: Stored) -> EffectEvent:
    """The effect event in a message of the ``fx`` registers.

    Raises:
        Damaged: it cannot be trusted.
    """
    record = decode(stored.payload)
    body = record.body
    try:
        match record.kind:
            case Kind.CLAIM:
                return Claimed(Owner(*body["owner"]), body["attempt"], body["effect_key"])
            case Kind.RELEASE:
                return Released(Owner(*body["owner"]), body["reason"])
            case Kind.OUTCOME:
                return read_outcome(body)
            case Kind.GATE_ASKED:
                return GateAsked(**body)
            case Kind.GATE_DECIDED:
                return GateDecided(**body)
            case other:
                raise Damaged(f"sequence {stored.sequence}: {other!r} is no kind of effect record")
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"sequence {stored.sequence}: a field is missing or odd: {error!r}") from None


def _outcome_body(event: Outcome) -> dict[str, Any]:
    body: dict[str, Any] = {
        "call": [event.call.run, event.call.step, event.call.n],
        "tool": event.tool,
        "state": event.state,
        "text": event.text,
        "durable": event.durable,
        "turn": event.turn_id,
    }
    optional = {
        "data": dict(event.data),
        "error": event.error,
        "rule": event.rule,
        "by": event.by,
        "resource": event.resource,
        "effect_key": event.effect_key,
        "claim": event.claim_sequence,
    }
    return body | {name: value for name, value in optional.items() if value}


def read_outcome(body: Body) -> Outcome:
    """The outcome in a ``done`` record's body."""
    return Outcome(
        call=CallId(*body["call"]),
        tool=body["tool"],
        state=body["state"],
        text=body["text"],
        data=body.get("data", {}),
        durable=body["durable"],
        error=body.get("error", ""),
        rule=body.get("rule", ""),
        by=body.get("by", ""),
        resource=body.get("resource", ""),
        effect_key=body.get("effect_key", ""),
        claim_sequence=body.get("claim", 0),
        turn_id=body["turn"],
    )
