"""Presence: each process renews an entry in the bucket ``leases``, and judges others by the renewals of theirs.

The entry ``presence.<service>.<instance>`` names one incarnation and the incarnations that it replaced. A process renews it by
compare-and-set, three times a lease. A replaced incarnation therefore cannot restore its entry: it detects this, and ends.

Clocks of two machines are never compared. What counts is how long *this* process has seen no renewal of an incarnation while
its own renewals succeeded. While the bus is unavailable no process can renew, so that time does not count. A read may return
an old value: another incarnation in the entry proves nothing, unless its entry names this one as replaced.
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
from typing import Any, Literal

from anchorwatch.bus.port import Bus, Entry, KeyExists, KeyValue
from anchorwatch.core.errors import AnchorWatchError, Unavailable
from anchorwatch.service.context import Identity
from anchorwatch.topology.streams import LEASES_BUCKET

BEATS_PER_LEASE = 3
# It only removes the names of containers that never return.
ENTRY_TTL_S = 24 * 3600
REPLACED_MAX = 16
"""The number of former incarnations in an entry; older ones are judged by their missing renewals."""
WATCHED_MAX = 256
HEALTHY_BEATS = 30
"""After this many beats (ten leases), the end of an incarnation is not counted as a crash at its start."""

Liveness = Literal["alive", "dead", "gone", "unknown"]


def presence_key(service: str, instance: str) -> str:
    """The key of an instance's entry."""
    return f"presence.{service}.{instance}"


@dataclass(frozen=True, slots=True)
class PresenceEntry:
    """An entry; ``revision`` is 0 if there is none. ``crashes`` is the count for the next incarnation, if this one ended now."""

    revision: int = 0
    incarnation: str = ""
    ended: bool = False
    replaced: tuple[str, ...] = ()
    crashes: int = 0

    @classmethod
    def of(cls, entry: Entry | None) -> PresenceEntry:
        """Read an entry; an unreadable one names no incarnation."""
        if entry is None:
            return cls()
        try:
            value = json.loads(entry.value)
            return cls(
                entry.revision,
                str(value["incarnation"]),
                bool(value["ended"]),
                tuple(value["replaced"]),
                int(value.get("crashes", 0)),
            )
        except (ValueError, KeyError, TypeError):
            return cls(entry.revision)


@dataclass(slots=True)
class _Watch:
    """Another process: the last revision of its entry (0 if none), and since when it is unchanged."""

    revision: int
    since: float


class Presence:
    """The entry of this process, and its view of the other processes of the service.

    ``replaced`` is set once another process has this instance's name; this process must then end. ``crashes`` counts the
    consecutive earlier incarnations that ended early and did not record their end.
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
        self.crashes = 0
        self._former: tuple[str, ...] = ()
        self._revision = 0
        self._bucket: KeyValue | None = None
        self._task: asyncio.Task[None] | None = None
        self._watched: dict[tuple[str, str], _Watch] = {}
        # Since when each of our own renewals succeeded in time; None while they fail.
        self._steady_since: float | None = None
        self._renewed_at = 0.0

    async def start(self) -> None:
        """Write the entry, and renew it. The former incarnation of this instance counts as dead from now on.

        Raises:
            Unavailable.
        """
        self._bucket = await self._bus.bucket(LEASES_BUCKET)
        await self._acquire()
        self._task = asyncio.create_task(self._renew_forever(), name="presence")

    async def stop(self) -> None:
        """Record the end of this incarnation, so that no process waits for its lease."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        if not self.replaced.is_set():
            with contextlib.suppress(AnchorWatchError):
                await self._kv.update(self._key, self._value(ended=True), self._revision, ENTRY_TTL_S)

    async def alive(self, instance: str, incarnation: str) -> Liveness:
        """Whether that process of this service may still be working.

        ``dead`` is proved: it was replaced, or it recorded its end. ``gone``: it has not renewed for a lease while renewals were
        possible; it may be suspended, and resume. A process is ``alive`` for one lease after the first call about it.
        ``unknown``: the bus is unavailable.
        """
        if instance == self._identity.instance:
            return await self._of_this_name(incarnation)
        try:
            present = await self._observe(instance, incarnation)
        except AnchorWatchError:
            return "unknown"
        if incarnation in present.replaced or (present.ended and present.incarnation == incarnation):
            return "dead"
        return "gone" if self._is_silent(instance, incarnation) else "alive"

    async def _of_this_name(self, incarnation: str) -> Liveness:
        """A former incarnation is dead. This process may be the former one itself, which only a write of the entry shows."""
        if incarnation == self._identity.incarnation:
            return "alive"
        if incarnation in self._former:
            return "dead"
        try:
            held = await self._renew()
        except AnchorWatchError:
            return "unknown"
        if self.replaced.is_set():
            return "alive"
        return "dead" if held else "unknown"

    @property
    def _kv(self) -> KeyValue:
        if self._bucket is None:
            raise Unavailable("presence was not started")
        return self._bucket

    async def _observe(self, instance: str, incarnation: str) -> PresenceEntry:
        present = PresenceEntry.of(await self._kv.get(presence_key(self._identity.service, instance)))
        revision = present.revision if present.incarnation == incarnation else 0
        watch = self._watched.get((instance, incarnation))
        if watch is None or watch.revision != revision:
            self._watched.pop((instance, incarnation), None)
            self._watched[instance, incarnation] = _Watch(revision, self._monotonic())
        while len(self._watched) > WATCHED_MAX:
            # The one that is unchanged for longest: dead, or last queried long ago.
            del self._watched[next(iter(self._watched))]
        return present

    def _is_silent(self, instance: str, incarnation: str) -> bool:
        if self._steady_since is None:
            return False
        since = max(self._watched[instance, incarnation].since, self._steady_since)
        return self._monotonic() - since >= self._lease_s

    async def _renew_forever(self) -> None:
        pause_s = self._interval_s
        while not self.replaced.is_set():
            await self._sleep(pause_s)
            pause_s = self._interval_s
            try:
                # One lost answer must not cost the lease.
                async with asyncio.timeout(self._interval_s):
                    await self._renew()
                    for instance, incarnation in tuple(self._watched):
                        await self._observe(instance, incarnation)
            except AnchorWatchError:
                # Retry for ever: a process that stops renewing counts as gone, and would not know it.
                self._steady_since = None
            except TimeoutError:
                self._steady_since = None
                pause_s = 0.0

    async def _acquire(self) -> None:
        """Write the entry over that of any other incarnation."""
        while True:
            with contextlib.suppress(KeyExists):
                present = PresenceEntry.of(await self._kv.get(self._key))
                if present.incarnation != self._identity.incarnation:
                    self.crashes = 0 if present.ended else present.crashes
                await self._write_over(present)
                return
            # The read was old, or another process writes too: read again.
            await self._sleep(self._interval_s / 10)

    async def _renew(self) -> bool:
        """Renew the entry; False if this process could not."""
        try:
            await self._write(self._revision)
        except KeyExists:
            present = PresenceEntry.of(await self._kv.get(self._key))
            if self._identity.incarnation in present.replaced:
                self.replaced.set()
                return False
            # Our own write whose answer was lost, a removed entry, or an old read: continue from the entry.
            try:
                await self._write_over(present)
            except KeyExists:
                return False
        return True

    async def _write_over(self, present: PresenceEntry) -> None:
        if present.incarnation not in ("", self._identity.incarnation, *self._former):
            self._former = (*present.replaced, *self._former, present.incarnation)[-REPLACED_MAX:]
        await self._write(present.revision)

    async def _write(self, revision: int) -> None:
        if revision == 0:
            self._revision = await self._kv.create(self._key, self._value(), ENTRY_TTL_S)
        else:
            self._revision = await self._kv.update(self._key, self._value(), revision, ENTRY_TTL_S)
        now = self._monotonic()
        # A late beat (this process was suspended, or the bus unavailable) leaves a gap in the observations.
        if self._steady_since is None or now - self._renewed_at > 2 * self._interval_s:
            self._steady_since = now
        self._renewed_at = now

    def _value(self, *, ended: bool = False) -> bytes:
        self._beats += 1
        value: dict[str, Any] = {
            "incarnation": self._identity.incarnation,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "started_at": self._started_at,
            "beat": self._beats,
            "lease_s": self._lease_s,
            "ended": ended,
            "replaced": self._former,
            "crashes": self.crashes + 1 if self._beats < HEALTHY_BEATS else 0,
        }
        return json.dumps(value).encode()
