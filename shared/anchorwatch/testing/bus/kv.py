"""Buckets and object stores of the simulation. A bucket is a stream ``KV_<name>``, as on the real server."""

from __future__ import annotations

import re

from anchorwatch.bus.port import Entry, Expect, KeyExists, Message, Stored, WrongLastSequence
from anchorwatch.core.errors import BadInput
from anchorwatch.testing.bus.calls import Caller

OPERATION_HEADER = "KV-Operation"
KEYS_MAX = 1_000_000
_KEY = re.compile(r"[-/_=.a-zA-Z0-9]+")


def check_key(key: str) -> str:
    """Return ``key`` if it is valid.

    Raises:
        BadInput: it has other characters, or an empty token.
    """
    if not _KEY.fullmatch(key) or "" in key.split("."):
        raise BadInput(
            f"{key[:80]!r} is not a valid key", hint="use letters, digits, '-', '/', '_', '=' and '.'"
        )
    return key


class SimKeyValue:
    """One bucket, as one client sees it."""

    def __init__(self, calls: Caller, name: str) -> None:
        self._calls = calls
        self._name = name
        self._stream = f"KV_{name}"
        self._prefix = f"$KV.{name}."

    async def get(self, key: str) -> Entry | None:
        stored = await self._stored(check_key(key))
        return None if stored is None or _is_marker(stored) else self._entry(stored)

    async def put(self, key: str, value: bytes) -> int:
        return await self._write(key, value, None)

    async def create(self, key: str, value: bytes, ttl_s: int | None = None) -> int:
        try:
            return await self._write(key, value, 0, ttl_s)
        except KeyExists:
            # A deleted key has a marker; it is free.
            stored = await self._stored(key)
            if stored is None or not _is_marker(stored):
                raise
            return await self._write(key, value, stored.sequence, ttl_s)

    async def update(self, key: str, value: bytes, revision: int, ttl_s: int | None = None) -> int:
        return await self._write(key, value, revision, ttl_s)

    async def delete(self, key: str, revision: int | None = None) -> None:
        await self._write(key, b"", revision, headers={OPERATION_HEADER: "DEL"})

    async def keys(self) -> list[str]:
        page = await self._calls.call(
            f"$JS.API.CONSUMER.CREATE.{self._stream}",
            lambda server: server.stream(self._stream).lasts(
                [self._prefix + ">"], server.stream(self._stream).last_sequence, KEYS_MAX
            ),
        )
        return sorted(
            stored.subject.removeprefix(self._prefix) for stored in page.messages if not _is_marker(stored)
        )

    async def revision(self) -> int:
        return await self._calls.call(
            f"$JS.API.STREAM.INFO.{self._stream}",
            lambda server: server.stream(self._stream).state().last_sequence,
        )

    async def _stored(self, key: str) -> Stored | None:
        subject = self._prefix + key
        return await self._calls.call(
            f"$JS.API.DIRECT.GET.{self._stream}.{subject}", lambda server: server.key(self._stream, subject)
        )

    async def _write(
        self,
        key: str,
        value: bytes,
        revision: int | None,
        ttl_s: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> int:
        subject = self._prefix + check_key(key)
        expect = None if revision is None else Expect(subject, revision)
        message = Message(subject, value, expect=expect, headers=headers or {}, ttl_s=ttl_s)
        try:
            ack = await self._calls.publish(message)
        except WrongLastSequence as error:
            raise KeyExists(f"key {key!r} of {self._name}: {error.message}") from error
        return ack.sequence

    def _entry(self, stored: Stored) -> Entry:
        return Entry(stored.subject.removeprefix(self._prefix), stored.payload, stored.sequence)


class SimObjectStore:
    """One object store, as one client sees it. A name is written once; writing the same bytes again succeeds."""

    def __init__(self, calls: Caller, name: str) -> None:
        self._calls = calls
        self._name = name

    async def put(self, name: str, data: bytes) -> None:
        await self._calls.call(
            f"$O.{self._name}.M.{name}",
            lambda server: server.objects.put(self._name, name, bytes(data)),
            write=True,
        )

    async def get(self, name: str) -> bytes | None:
        return await self._calls.call(
            f"$JS.API.DIRECT.GET.OBJ_{self._name}", lambda server: server.objects.get(self._name, name)
        )

    async def delete(self, name: str) -> None:
        await self._calls.call(
            f"$O.{self._name}.M.{name}",
            lambda server: server.objects.delete(self._name, name),
            write=True,
        )


def _is_marker(stored: Stored) -> bool:
    return stored.headers.get(OPERATION_HEADER) in ("DEL", "PURGE")


__all__ = ["SimKeyValue", "SimObjectStore", "check_key"]
