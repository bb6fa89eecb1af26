"""Object stores, in the form of every NATS client: chunks, then a record with size and digest."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from typing import Any

from anchorwatch.bus.jetstream.publishing import Publisher
from anchorwatch.bus.jetstream.reads import Reader
from anchorwatch.bus.jetstream.streams import Streams
from anchorwatch.bus.port import Expect, Message, Stored, WrongLastSequence
from anchorwatch.core.errors import Conflict, Damaged, Unavailable

CHUNK_BYTES = 128 * 1024
CHUNKS_A_READ = 64
TIMEOUT_S = 10.0


class Objects:
    """One object store. A name is written once; writing the same bytes again succeeds."""

    def __init__(self, publisher: Publisher, reader: Reader, streams: Streams, name: str) -> None:
        self._publisher = publisher
        self._reader = reader
        self._streams = streams
        self._name = name
        self._stream = f"OBJ_{name}"

    async def put(self, name: str, data: bytes) -> None:
        digest = _digest(data)
        found = await self._find(name)
        if found is not None and not found[0].get("deleted"):
            self._check_same(name, found[0], digest)
            return
        expect = Expect(self._meta(name), found[1].sequence if found else 0)
        chunks = self._chunks(secrets.token_hex(16))
        try:
            for start in range(0, len(data), CHUNK_BYTES):
                await self._publisher.publish(Message(chunks, data[start : start + CHUNK_BYTES]), TIMEOUT_S)
            # This record creates the object; readers do not see chunks without a record.
            await self._publisher.publish(self._record(name, chunks, data, digest, expect), TIMEOUT_S)
        except WrongLastSequence:
            await self._streams.purge(self._stream, chunks)
            found = await self._find(name)
            if found is None:
                raise
            self._check_same(name, found[0], digest)

    def _record(self, name: str, chunks: str, data: bytes, digest: str, expect: Expect) -> Message:
        info = {
            "name": name,
            "bucket": self._name,
            "nuid": chunks.rpartition(".")[2],
            "size": len(data),
            "chunks": -(-len(data) // CHUNK_BYTES),
            "digest": digest,
            "options": {"max_chunk_size": CHUNK_BYTES},
        }
        # One record for each name: it replaces that of a deleted object.
        headers = {"Nats-Rollup": "sub"}
        return Message(self._meta(name), json.dumps(info).encode(), expect=expect, headers=headers)

    async def get(self, name: str) -> bytes | None:
        found = await self._find(name)
        if found is None or found[0].get("deleted"):
            return None
        info = found[0]
        data = await self._read(self._chunks(info["nuid"]), int(info["size"]))
        if len(data) != int(info["size"]):
            # The replica lags, or a client is deleting the object.
            raise Unavailable(f"object {name} of {self._name}: {len(data)} of {info['size']} bytes found")
        if _digest(data) != info["digest"]:
            raise Damaged(f"object {name} of {self._name} does not match its digest")
        return data

    async def delete(self, name: str) -> None:
        found = await self._find(name)
        if found is None:
            return
        # The record is removed last: until then an interrupted deletion can be repeated.
        await self._streams.purge(self._stream, self._chunks(found[0]["nuid"]))
        await self._streams.purge(self._stream, self._meta(name))

    async def _read(self, subject: str, size: int) -> bytes:
        data = bytearray()
        at = 1
        while len(data) < size:
            page = await self._reader.range(self._stream, subject, at, CHUNKS_A_READ, TIMEOUT_S, reach=0)
            if not page.messages:
                break
            for chunk in page.messages:
                data += chunk.payload
            at = page.messages[-1].sequence + 1
        return bytes(data)

    async def _find(self, name: str) -> tuple[dict[str, Any], Stored] | None:
        stored = await self._reader.get_last(self._stream, self._meta(name), TIMEOUT_S)
        return None if stored is None else (json.loads(stored.payload), stored)

    def _meta(self, name: str) -> str:
        return f"$O.{self._name}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"

    def _chunks(self, nuid: str) -> str:
        return f"$O.{self._name}.C.{nuid}"

    def _check_same(self, name: str, info: dict[str, Any], digest: str) -> None:
        if info["digest"] != digest:
            raise Conflict(f"object {name} of {self._name} exists with other content")


def _digest(data: bytes) -> str:
    return "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
