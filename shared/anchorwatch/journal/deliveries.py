"""Deliveries in the journal: the state of one notification on one channel.

A delivery is an effect, with the states and the machine of `anchorwatch.core.effect`. But it belongs to no command: the policy
does not judge it, no kill switch stops it, it blocks no resource, and it is listed under deliveries. Its register
``sent.<delivery_id>`` is fenced on itself, and holds claims (``delivery_claimed``) and the end (``delivery``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from anchorwatch.bus.port import Bus, Expect, Stored
from anchorwatch.codec import decode, encode
from anchorwatch.core.effect.state import (
    Claimed,
    EffectState,
    Outcome,
    OutcomeState,
    Owner,
    apply_effect,
    with_holes,
)
from anchorwatch.core.errors import Damaged, NewerSchema
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.journal.commit import Committer, Write
from anchorwatch.topology.subjects import SessionSubjects

DeliveryState = Literal["claimed", "sent", "failed", "unknown"]
PAGE = 64
_OUTCOMES: Final[Mapping[str, OutcomeState]] = {"sent": "succeeded", "failed": "failed", "unknown": "unknown"}
_NO_CALL: Final = CallId(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One notification on one channel. ``record``: sequence of the record that it tells of, in ``stream`` (empty: the journal).

    ``state``: `claimed` by ``owner``; `sent`; `failed` (given up); `unknown` (its sender died, and the channel cannot tell).
    ``doubt``: the owner before was silent, and not proved dead.
    """

    channel: str
    channel_kind: str
    record: int
    kinds: tuple[str, ...]
    title: str
    state: DeliveryState
    owner: Owner
    error: str = ""
    stream: str = ""
    doubt: bool = False

    def to_body(self) -> dict[str, Any]:
        """The body of its record."""
        body = {
            "channel": self.channel,
            "channel_kind": self.channel_kind,
            "record": self.record,
            "kinds": list(self.kinds),
            "title": self.title,
            "state": self.state,
            "owner": [self.owner.instance, self.owner.incarnation],
            "error": self.error,
        }
        body |= {"stream": self.stream} if self.stream else {}
        return body | ({"doubt": True} if self.doubt else {})


def read_delivery(body: Mapping[str, Any]) -> Delivery:
    """The delivery in a record's body.

    Raises:
        Damaged: a field is missing or odd.
    """
    try:
        return Delivery(
            channel=body["channel"],
            channel_kind=body["channel_kind"],
            record=body["record"],
            kinds=tuple(body["kinds"]),
            title=body["title"],
            state=body["state"],
            owner=Owner(*body["owner"]),
            error=body["error"],
            stream=body.get("stream", ""),
            doubt=body.get("doubt", False),
        )
    except (KeyError, TypeError) as error:
        raise Damaged(f"the record of a delivery: a field is missing or odd: {error!r}") from None


def apply_delivery(
    state: EffectState, sequence: int, at_ms: int, delivery_id: str, delivery: Delivery
) -> EffectState:
    """Fold one record of a delivery's register, as `apply_effect` folds those of a command."""
    if delivery.state == "claimed":
        claim = Claimed(delivery.owner, state.attempts + 1, delivery_id, delivery.doubt)
        return apply_effect(state, sequence, at_ms, claim)
    outcome = Outcome(
        _NO_CALL, delivery.channel, _OUTCOMES[delivery.state], delivery.title, {}, error=delivery.error
    )
    return apply_effect(state, sequence, at_ms, outcome)


class DeliveryJournal:
    """Reads and writes deliveries. ``writer`` names the process in the records."""

    def __init__(self, bus: Bus, committer: Committer, writer: str) -> None:
        self._bus = bus
        self._committer = committer
        self._writer = writer

    async def load(self, ref: SessionRef, delivery_id: str) -> EffectState:
        """The delivery as an effect, as far as the answering server knows: the fence of a write tells when that is out of date.

        A record that cannot be read counts as a claim that the journal has lost.

        Raises:
            Unavailable. NewerSchema: a newer release can read it.
        """
        state, subject, start = EffectState(), SessionSubjects(ref).sent(delivery_id), 1
        while True:
            page = await self._bus.range(self._committer.stream, subject, start, limit=PAGE)
            for stored in page.messages:
                state = _apply(state, delivery_id, stored)
            if not page.more:
                return state
            start = page.messages[-1].sequence + 1

    async def append(
        self, ref: SessionRef, delivery_id: str, state: EffectState, delivery: Delivery, at_ms: int
    ) -> EffectState:
        """Write directly after what ``state`` knows.

        Raises:
            Fenced: another process wrote to this register first. Unavailable: not confirmed in time.
        """
        kind = Kind.DELIVERY_CLAIMED if delivery.state == "claimed" else Kind.DELIVERY
        payload, _ = encode(Record(kind, at_ms, self._writer, delivery.to_body()))
        subject = SessionSubjects(ref).sent(delivery_id)
        sequence = await self._committer.commit([Write(subject, payload)], Expect(subject, state.head))
        return apply_delivery(state, sequence, at_ms, delivery_id, delivery)


def _apply(state: EffectState, delivery_id: str, stored: Stored) -> EffectState:
    sequence = stored.sequence
    try:
        record = decode(stored.payload)
        return apply_delivery(state, sequence, record.at_ms, delivery_id, read_delivery(record.body))
    except NewerSchema:
        raise
    except Damaged:
        lost = with_holes(state, 0, [(sequence, sequence)])
        return replace(lost, head=sequence, claim=None)
