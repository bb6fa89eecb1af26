"""Late outcomes: what an executor had to say of a command whose outcome was already recorded by others. Evidence, no state."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anchorwatch.bus.port import Bus, Message
from anchorwatch.codec import encode
from anchorwatch.core.effect.state import Outcome, Owner
from anchorwatch.core.errors import Unavailable
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.journal.commit import DEADLINE_S, RETRY_PAUSE_S
from anchorwatch.topology.subjects import SessionSubjects


@dataclass(frozen=True, slots=True)
class LateOutcome:
    """What the late executor knows. ``state`` is what it would have recorded."""

    call: CallId
    tool: str
    state: str
    text: str
    owner: Owner
    effect_key: str
    turn_id: str
    resource: str = ""
    claim_sequence: int = 0


def late_outcome(outcome: Outcome, owner: Owner) -> LateOutcome:
    """The evidence in an outcome that was refused."""
    return LateOutcome(
        outcome.call,
        outcome.tool,
        outcome.state,
        outcome.text,
        owner,
        outcome.effect_key,
        outcome.turn_id,
        outcome.resource,
        outcome.claim_sequence,
    )


async def write_late(
    bus: Bus, ref: SessionRef, late: LateOutcome, *, at_ms: int, writer: str, deadline_s: float = DEADLINE_S
) -> None:
    """Record the evidence. It has no fence: in the worst case it stands there twice.

    Raises:
        Unavailable: not confirmed in time.
    """
    payload, _ = encode(Record(Kind.LATE, at_ms, writer, _body(late)))
    message = Message(SessionSubjects(ref).late(late.call), payload, message_id=secrets.token_hex(8))
    try:
        async with asyncio.timeout(deadline_s):
            while True:
                try:
                    await bus.publish(message)
                    return
                except Unavailable:
                    await asyncio.sleep(RETRY_PAUSE_S)
    except TimeoutError:
        raise Unavailable(f"the journal did not take the late outcome of {ref} {late.call}") from None


def _body(late: LateOutcome) -> dict[str, Any]:
    return {
        "call": [late.call.run, late.call.step, late.call.n],
        "tool": late.tool,
        "state": late.state,
        "text": late.text,
        "owner": [late.owner.instance, late.owner.incarnation],
        "effect_key": late.effect_key,
        "turn": late.turn_id,
        "resource": late.resource,
        "claim": late.claim_sequence,
    }


def read_late(body: Mapping[str, Any]) -> LateOutcome:
    """The evidence in a ``late`` record's body."""
    return LateOutcome(
        call=CallId(*body["call"]),
        tool=body["tool"],
        state=body["state"],
        text=body["text"],
        owner=Owner(*body["owner"]),
        effect_key=body["effect_key"],
        turn_id=body["turn"],
        resource=body["resource"],
        claim_sequence=body["claim"],
    )
