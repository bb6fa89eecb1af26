"""Events of the effect machine as records, and back. The field names are the wire format: docs/wire-format.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, assert_never

from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode
from anchorwatch.core.effect.state import (
    Claimed,
    EffectEvent,
    GateAsked,
    GateDecided,
    Outcome,
    Owner,
    Released,
    Resolution,
)
from anchorwatch.core.errors import Damaged
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind
from anchorwatch.topology.subjects import DONE, NOTICE, RESOLVED, UNKNOWN

Body = Mapping[str, Any]


def effect_body(event: EffectEvent) -> tuple[str, str, dict[str, Any]]:
    """(register, record kind, body) of an effect event."""
    match event:
        case Claimed():
            body = {"owner": [event.owner.instance, event.owner.incarnation], "attempt": event.attempt}
            doubt = {"doubt": True} if event.doubt else {}
            return "claim", Kind.CLAIM, {**body, "effect_key": event.effect_key, **doubt}
        case Released():
            return (
                "claim",
                Kind.RELEASE,
                {"owner": [event.owner.instance, event.owner.incarnation], "reason": event.reason},
            )
        case Outcome():
            return outcome_register(event), Kind.OUTCOME, _outcome_body(event)
        case GateAsked():
            return "gate", Kind.GATE_ASKED, asdict(event)
        case GateDecided():
            return "gate", Kind.GATE_DECIDED, asdict(event)
        case _:
            assert_never(event)


def outcome_register(outcome: Outcome) -> str:
    """The register of an outcome, one of `OUTCOMES`."""
    match outcome.state:
        case "unknown":
            return UNKNOWN
        case "resolved":
            return RESOLVED
        case _:
            return NOTICE if isinstance(outcome.data.get("notify"), Mapping) else DONE


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
                doubt = body.get("doubt", False)
                return Claimed(Owner(*body["owner"]), body["attempt"], body["effect_key"], doubt)
            case Kind.RELEASE:
                return Released(Owner(*body["owner"]), body["reason"])
            case Kind.OUTCOME:
                return read_outcome(body)
            case Kind.GATE_ASKED:
                return GateAsked(**body)
            case Kind.GATE_DECIDED:
                return GateDecided(**body)
            case other:
                raise Damaged(f"{other!r} is not a kind of effect record", sequence=stored.sequence)
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"a field is missing or odd: {error!r}"[:300], sequence=stored.sequence) from None


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
        "resolution": asdict(event.resolution) if event.resolution else None,
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
        resolution=Resolution(**body["resolution"]) if "resolution" in body else None,
    )
