"""Publishes the mesh's own events. The server stores each event once in its dedupe window, which only helps a quick retry."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import replace

from anchorwatch.bus.port import Ack, Bus, Message, Stored
from anchorwatch.core.errors import IdempotencyConflict
from anchorwatch.service.events import Event, read_event
from anchorwatch.topology.streams import EVENTS
from anchorwatch.topology.subjects import EVENT_ALL

_KEY_BYTES = 16


class EventPublisher:
    """Publishes events of one process.

    The dedupe window of `EVENTS` is one for all its publishers: the server drops an event whose message id another publisher
    sent first. So a message id is a keyed digest that no other process can make (INV-109). ``key``: for tests.
    """

    def __init__(self, bus: Bus, key: bytes | None = None) -> None:
        self._bus = bus
        self._key = key or secrets.token_bytes(_KEY_BYTES)

    async def publish(self, event: Message) -> Ack:
        """Store an event; ``duplicate``: the server stored the same one a moment ago.

        Raises:
            IdempotencyConflict: it stored another event with this event's identity a moment ago.
            Unavailable: not confirmed; publishing it again is safe. TooLarge.
        """
        ours = _read(Stored(event.subject, 0, 0, event.payload, event.headers))
        ack = await self._bus.publish(replace(event, message_id=self._message_id(ours.input_id)))
        if not ack.duplicate:
            return ack
        page = await self._bus.range(EVENTS, EVENT_ALL, ack.sequence, limit=1, reach=ack.sequence)
        theirs = [read_event(each) for each in page.messages if each.sequence == ack.sequence]
        if theirs and theirs[0] is not None and theirs[0].input_id == ours.input_id:
            if theirs[0].body_sha256 == ours.body_sha256:
                return ack
            raise id_conflict(ours.event_id, theirs[0].body_sha256)
        # Another message has our id, or the stored one was removed meanwhile.
        return await self._bus.publish(replace(event, message_id=secrets.token_hex(_KEY_BYTES)))

    def _message_id(self, input_id: str) -> str:
        return hmac.digest(self._key, input_id.encode(), "sha256").hex()


def id_conflict(event_id: str, first_body_sha256: str) -> IdempotencyConflict:
    """The error for an event whose identity another event has."""
    return IdempotencyConflict(
        f"the event id {event_id!r} was used before for an event with another type or other data",
        hint="use a new id for a new event",
        first_body_sha256=first_body_sha256,
    )


def _read(stored: Stored) -> Event:
    event = read_event(stored)
    if event is None:
        raise ValueError(f"{stored.subject!r} is not the subject of an event")
    return event
