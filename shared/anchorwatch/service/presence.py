"""Who is there: each process keeps an entry in the bucket ``leases``, and judges others by whether theirs still moves.

An entry stands under ``presence.<service>.<instance>`` and names one incarnation. It is renewed by compare-and-set,
three times a lease, so an incarnation that was replaced can never bring its entry back: it finds out, and ends.

No clock is compared with another machine's: what counts is how long *this* process has seen an entry stand still, while its own
entry could be renewed. When the bus was away, nobody could renew, so the time before says nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from anchorwatch.bus.port import Bus, Entry, KeyExists, KeyValue
from anchorwatch.core.errors import Unavailable
from anchorwatch.service.context import Identity
from anchorwatch.topology.streams import LEASES_BUCKET

BEATS_PER_LEASE = 3
# Long after anyone could care; it only clears away the names of containers that never come back.
ENTRY_TTL_S = 24 * 3600

Verdict = Literal["alive", "dead", "unknown"]


def presence_key(service: str, instance: str) -> str:
    """Where an instance's entry stands."""
    return f"presence.{service}.{instance}"


@dataclass(slots=True)
class _Seen:
    """An entry's revision (0: there is none), and since when it has stood still."""

    revision: int
    since: float


class Presence:
    """This process's entry, and its view of the others of its service.

    ``replaced`` is set when another process took this instance's name: it must end then.
    """

    def __init__(
        self,
        bus: Bus,
        identity: Identity,
        lease_s: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.replaced = asyncio.Event()
        self._bus = bus
        self._identity = identity
        self._lease_s = lease_s
        self._interval_s = lease_s / BEATS_PER_LEASE
        self._monotonic = monotonic
        self._sleep = sleep
        self._key = presence_key(identity.service, identity.instance)
        self._started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._beats = 0
        self._revision = 0
        self._bucket: KeyValue | None = None
        self._task: asyncio.Task[None] | None = None
        self._seen: dict[str, _Seen] = {}
        # Since when every renewal of our own has gone through in time; None while they do not.
        self._steady_since: float | None = None
        self._renewed_at = 0.0

    async def start(self) -> None:
        """Take the entry, and keep it. The former incarnation of this instance counts as dead from here on.

        Raises:
            Unavailable: the bus is away.
        """
        self._bucket = await self._bus.bucket(LEASES_BUCKET)
        await self._take()
        self._task = asyncio.create_task(self._keep(), name="presence")

    async def stop(self) -> None:
        """Say that this incarnation ended, so that nobody has to wait for its lease."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        if not self.replaced.is_set():
            with contextlib.suppress(Unavailable, KeyExists):
                await self._kv.update(self._key, self._value(ended=True), self._revision, ENTRY_TTL_S)

    async def alive(self, instance: str, incarnation: str) -> Verdict:
        """Whether that process of this service may still be at work.

        ``dead`` is proved: a newer incarnation holds the name, it said that it ended, or its entry stood still for a lease
        while renewing was possible. ``unknown``: the bus is away.
        """
        if instance == self._identity.instance:
            return "alive" if incarnation == self._identity.incarnation else "dead"
        try:
            entry = await self._look(instance)
        except Unavailable:
            return "unknown"
        if entry is not None:
            try:
                value = json.loads(entry.value)
                present, ended = value["incarnation"], value.get("ended", False)
            except (ValueError, KeyError, TypeError, AttributeError):
                return "unknown"
            if ended or present != incarnation:
                return "dead"
        return "dead" if self._stood_still(instance) else "alive"

    @property
    def _kv(self) -> KeyValue:
        if self._bucket is None:
            raise Unavailable("presence was not started")
        return self._bucket

    async def _look(self, instance: str) -> Entry | None:
        entry = await self._kv.get(presence_key(self._identity.service, instance))
        revision = entry.revision if entry is not None else 0
        seen = self._seen.get(instance)
        if seen is None or seen.revision != revision:
            self._seen[instance] = _Seen(revision, self._monotonic())
        return entry

    def _stood_still(self, instance: str) -> bool:
        if self._steady_since is None:
            return False
        since = max(self._seen[instance].since, self._steady_since)
        return self._monotonic() - since >= self._lease_s

    async def _keep(self) -> None:
        while True:
            await self._sleep(self._interval_s)
            try:
                await self._renew()
                for instance in tuple(self._seen):
                    await self._look(instance)
            except Unavailable:
                self._steady_since = None
            if self.replaced.is_set():
                return

    async def _take(self) -> None:
        """Write the entry, whoever had it before."""
        while True:
            entry = await self._kv.get(self._key)
            with contextlib.suppress(KeyExists):
                await self._write(entry.revision if entry is not None else None)
                return

    async def _renew(self) -> None:
        try:
            await self._write(self._revision)
        except KeyExists:
            entry = await self._kv.get(self._key)
            if entry is not None and not self._is_mine(entry):
                self.replaced.set()
                return
            # Our own write, whose answer was lost, or an entry that is gone: go on from what stands there.
            with contextlib.suppress(KeyExists):
                await self._write(entry.revision if entry is not None else None)

    async def _write(self, revision: int | None) -> None:
        if revision is None:
            self._revision = await self._kv.create(self._key, self._value(), ENTRY_TTL_S)
        else:
            self._revision = await self._kv.update(self._key, self._value(), revision, ENTRY_TTL_S)
        now = self._monotonic()
        # A beat that came late (this process was stopped, or the bus away) leaves a gap in what was seen.
        if self._steady_since is None or now - self._renewed_at > 2 * self._interval_s:
            self._steady_since = now
        self._renewed_at = now

    def _is_mine(self, entry: Entry) -> bool:
        try:
            return bool(json.loads(entry.value)["incarnation"] == self._identity.incarnation)
        except (ValueError, KeyError, TypeError):
            return False

    def _value(self, *, ended: bool = False) -> bytes:
        self._beats += 1
        value = {
            "incarnation": self._identity.incarnation,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "started_at": self._started_at,
            "beat": self._beats,
        }
        return json.dumps(value | {"ended": True} if ended else value).encode()
