"""Late outcomes: what an executor had to say of a command whose outcome was already recorded by others. Evidence, no state."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from anchorwatch.bus.port import Bus, Message
from anchorwatch.codec import Call, OwnerPair, encode, write_body
from anchorwatch.core.effect.state import Outcome, Owner
from anchorwatch.core.errors import Unavailable
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.journal.commit import DEADLINE_S, RETRY_PAUSE_S
from anchorwatch.topology.subjects import SessionSubjects


@dataclass(frozen=True, slots=True)
class LateOutcome:
    """What the late executor knows. ``state`` is what it would have recorded."""

    call: Call
    tool: str
    state: str
    text: str
    owner: OwnerPair
    effect_key: str
    turn_id: Annotated[str, Field(alias="turn")]
    resource: str = ""
    claim_sequence: Annotated[int, Field(alias="claim")] = 0


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
    """Record the evidence. It has no fence: at worst it is stored twice.

    Raises:
        Unavailable: not confirmed in time.
    """
    payload, _ = encode(Record(Kind.LATE, at_ms, writer, write_body(late)))
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
