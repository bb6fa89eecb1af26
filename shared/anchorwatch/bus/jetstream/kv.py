"""Key-value buckets, in the form of every NATS client."""

from __future__ import annotations

import re

from anchorwatch.bus.jetstream.consumers import Consumers
from anchorwatch.bus.jetstream.link import Link
from anchorwatch.bus.jetstream.publishing import Publisher
from anchorwatch.bus.jetstream.reads import Reader
from anchorwatch.bus.jetstream.streams import Streams
from anchorwatch.bus.port import Entry, Expect, KeyExists, Message, Stored, WrongLastSequence
from anchorwatch.core.errors import BadInput

TIMEOUT_S = 5.0
# A dot at an end, or two in a row, make a subject that the server assigns to no stream.
_KEY = re.compile(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*")
_OPERATION = "KV-Operation"
_MARKER = "Nats-Marker-Reason"


class Bucket:
    """One bucket."""

    def __init__(self, link: Link, publisher: Publisher, reader: Reader, streams: Streams, name: str) -> None:
        self._consumers = Consumers(link)
        self._publisher = publisher
        self._reader = reader
        self._streams = streams
        self._stream = f"KV_{name}"
        self._prefix = f"$KV.{name}."

    async def get(self, key: str) -> Entry | None:
        stored = await self._read(key)
        if stored is None or _is_marker(stored):
            return None
        return Entry(key, stored.payload, stored.sequence)

    async def put(self, key: str, value: bytes) -> int:
        return await self._publish(Message(self._subject(key), value))

    async def create(self, key: str, value: bytes, ttl_s: int | None = None) -> int:
        subject = self._subject(key)
        try:
            return await self._publish(Message(subject, value, expect=Expect(subject, 0), ttl_s=ttl_s))
        except WrongLastSequence as error:
            found = await self._read(key)
            if found is None or not _is_marker(found):
                raise KeyExists(f"key {key!r} exists") from error
            # The key was deleted: replace the deletion marker.
            return await self.update(key, value, found.sequence, ttl_s)

    async def update(self, key: str, value: bytes, revision: int, ttl_s: int | None = None) -> int:
        subject = self._subject(key)
        try:
            return await self._publish(Message(subject, value, expect=Expect(subject, revision), ttl_s=ttl_s))
        except WrongLastSequence as error:
            raise KeyExists(f"key {key!r} is not at revision {revision}") from error

    async def delete(self, key: str, revision: int | None = None) -> None:
        subject = self._subject(key)
        expect = None if revision is None else Expect(subject, revision)
        try:
            await self._publish(Message(subject, b"", expect=expect, headers={_OPERATION: "DEL"}))
        except WrongLastSequence as error:
            raise KeyExists(f"key {key!r} is not at revision {revision}") from error

    async def keys(self) -> list[str]:
        subjects = await self._consumers.last_headers(self._stream, f"{self._prefix}>")
        return sorted(each.subject[len(self._prefix) :] for each in subjects if not _is_marker(each))

    async def revision(self) -> int:
        return (await self._streams.state(self._stream)).last_sequence

    async def _read(self, key: str) -> Stored | None:
        return await self._reader.get_last(self._stream, self._subject(key), TIMEOUT_S)

    async def _publish(self, message: Message) -> int:
        return (await self._publisher.publish(message, TIMEOUT_S)).sequence

    def _subject(self, key: str) -> str:
        if not _KEY.fullmatch(key):
            raise BadInput(
                f"{key[:200]!r} is not a valid key", hint="use letters, digits and - / _ = with single dots"
            )
        return self._prefix + key


def _is_marker(stored: Stored) -> bool:
    return _MARKER in stored.headers or stored.headers.get(_OPERATION) in ("DEL", "PURGE")
