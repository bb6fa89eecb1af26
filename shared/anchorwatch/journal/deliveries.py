"""Deliveries in the journal: what became of one notification on one channel.

The register ``sent.<delivery_id>`` is fenced on itself. Its last record counts: a claim (``delivery_claimed``:
somebody is about to send), or the end of it (``delivery``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from anchorwatch.bus.port import Bus, Expect, Stored
from anchorwatch.codec import decode, encode
from anchorwatch.core.effect.state import Owner
from anchorwatch.core.errors import Damaged, NewerSchema
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.journal.commit import Committer, Write
from anchorwatch.topology.subjects import SessionSubjects

DeliveryState = Literal["claimed", "sent", "failed", "unknown"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One notification on one channel. ``record``: sequence of the record that it tells of, in ``stream`` (empty: the journal).

    ``state``: `claimed` by ``owner``; `sent`; `failed` (given up); `unknown` (its sender died, and the channel cannot be asked).
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
        return body | {"stream": self.stream} if self.stream else body


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
        )
    except (KeyError, TypeError) as error:
        raise Damaged(f"the record of a delivery: a field is missing or odd: {error!r}") from None


@dataclass(frozen=True, slots=True)
class Standing:
    """What a register says now; ``head`` is its last sequence (0: nothing was written).

    ``unreadable``: what it says cannot be read, and so nobody can tell what became of the delivery.
    """

    head: int = 0
    delivery: Delivery | None = None
    unreadable: bool = False

    @property
    def ended(self) -> bool:
        return self.delivery is not None and self.delivery.state != "claimed"


class DeliveryJournal:
    """Reads and writes deliveries. ``writer`` names the process in the records."""

    def __init__(self, bus: Bus, committer: Committer, writer: str) -> None:
        self._bus = bus
        self._committer = committer
        self._writer = writer

    async def load(self, ref: SessionRef, delivery_id: str) -> Standing:
        """What the register says, as far as the answering server knows; writing tells when that is out of date.

        Raises:
            Unavailable. NewerSchema: a newer release knows what it says.
        """
        page = await self._bus.last(self._committer.stream, [SessionSubjects(ref).sent(delivery_id)])
        return _standing(page.messages[0]) if page.messages else Standing()

    async def append(
        self, ref: SessionRef, delivery_id: str, standing: Standing, delivery: Delivery, at_ms: int
    ) -> Standing:
        """Write directly behind what ``standing`` knows.

        Raises:
            Fenced: somebody else wrote to this register first. Unavailable: not confirmed in time.
        """
        kind = Kind.DELIVERY_CLAIMED if delivery.state == "claimed" else Kind.DELIVERY
        payload, _ = encode(Record(kind, at_ms, self._writer, delivery.to_body()))
        subject = SessionSubjects(ref).sent(delivery_id)
        sequence = await self._committer.commit([Write(subject, payload)], Expect(subject, standing.head))
        return Standing(sequence, delivery)


def _standing(stored: Stored) -> Standing:
    try:
        return Standing(stored.sequence, read_delivery(decode(stored.payload).body))
    except NewerSchema:
        raise
    except Damaged:
        return Standing(stored.sequence, unreadable=True)
