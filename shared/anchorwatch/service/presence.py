"""Who is there: each process keeps an entry in the bucket ``leases``, and judges others by whether theirs still moves.

An entry stands under ``presence.<service>.<instance>`` and names one incarnation, and those that it replaced. It is
renewed by compare-and-set, three times a lease, so an incarnation that was replaced cannot bring its entry back: it
finds out, and ends.

No clock is compared with another machine's: what counts is how long *this* process has seen an incarnation not renew,
while its own entry could be renewed. When the bus was away, nobody could renew, so the time before says nothing. And
what a key holds may be read late: that another incarnation stands there proves nothing, unless it names this one as
replaced.
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
# Long after anyone could care; it only clears away the names of containers that never come back.
ENTRY_TTL_S = 24 * 3600
REPLACED_MAX = 16
"""Former incarnations that an entry names; older ones are dead by not having renewed."""
WATCHED_MAX = 256
HEALTHY_BEATS = 30
"""An incarnation that lived for so many beats (ten leases) did not end because of what it began with."""

Verdict = Literal["alive", "dead", "gone", "unknown"]


def presence_key(service: str, instance: str) -> str:
    """Where an instance's entry stands."""
    return f"presence.{service}.{instance}"


@dataclass(frozen=True, slots=True)
class Present:
    """What an entry says. ``revision`` 0: there is no entry. ``crashes``: as `Presence` has it, if this incarnation ended now."""

    revision: int = 0
    incarnation: str = ""
    ended: bool = False
    replaced: tuple[str, ...] = ()
    crashes: int = 0

    @classmethod
    def of(cls, entry: Entry | None) -> Present:
        """Read an entry; one that cannot be read says nothing of anyone."""
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
    """Another process: its entry's last revision (0: it has none), and since when that has stood still."""

    revision: int
    since: float


class Presence:
    """This process's entry, and its view of the others of its service.

    ``replaced`` is set when another process took this instance's name: it must end then. ``crashes``: how many former
    incarnations of this instance, the last ones in a row, ended soon and without a word.
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
            with contextlib.suppress(AnchorWatchError):
                await self._kv.update(self._key, self._value(ended=True), self._revision, ENTRY_TTL_S)

    async def alive(self, instance: str, incarnation: str) -> Verdict:
        """Whether that process of this service may still be at work.

        ``dead`` is proved: it was replaced, or it said that it ended. ``gone``: it has not renewed for
        a lease, while renewing was possible; it may only be stopped, and go on. Whoever was never asked
        about is ``alive`` for that long. ``unknown``: the bus is away.
        """
        if instance == self._identity.instance:
            return await self._of_this_name(incarnation)
        try:
            present = await self._look(instance, incarnation)
        except AnchorWatchError:
            return "unknown"
        if incarnation in present.replaced or (present.ended and present.incarnation == incarnation):
            return "dead"
        return "gone" if self._stood_still(instance, incarnation) else "alive"

    async def _of_this_name(self, incarnation: str) -> Verdict:
        """A former incarnation is dead. But this process may be the former one by now: only the entry tells, by a write."""
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

    async def _look(self, instance: str, incarnation: str) -> Present:
        present = Present.of(await self._kv.get(presence_key(self._identity.service, instance)))
        revision = present.revision if present.incarnation == incarnation else 0
        watch = self._watched.get((instance, incarnation))
        if watch is None or watch.revision != revision:
            self._watched.pop((instance, incarnation), None)
            self._watched[instance, incarnation] = _Watch(revision, self._monotonic())
        while len(self._watched) > WATCHED_MAX:
            # The one that has stood still longest: dead, or asked about long ago.
            del self._watched[next(iter(self._watched))]
        return present

    def _stood_still(self, instance: str, incarnation: str) -> bool:
        if self._steady_since is None:
            return False
        since = max(self._watched[instance, incarnation].since, self._steady_since)
        return self._monotonic() - since >= self._lease_s

    async def _keep(self) -> None:
        pause_s = self._interval_s
        while not self.replaced.is_set():
            await self._sleep(pause_s)
            pause_s = self._interval_s
            try:
                # One answer that is lost must not cost the lease.
                async with asyncio.timeout(self._interval_s):
                    await self._renew()
                    for instance, incarnation in tuple(self._watched):
                        await self._look(instance, incarnation)
            except AnchorWatchError:
                # Away, or refusing us for now: whoever stops renewing for good counts as gone, and would not know it.
                self._steady_since = None
            except TimeoutError:
                self._steady_since = None
                pause_s = 0.0

    async def _take(self) -> None:
        """Write the entry, whoever had it before."""
        while True:
            with contextlib.suppress(KeyExists):
                present = Present.of(await self._kv.get(self._key))
                if present.incarnation != self._identity.incarnation:
                    self.crashes = 0 if present.ended else present.crashes
                await self._write_over(present)
                return
            # Read late, or another process is at the same: look again.
            await self._sleep(self._interval_s / 10)

    async def _renew(self) -> bool:
        """Write the entry once more; whether it was this process's to write."""
        try:
            await self._write(self._revision)
        except KeyExists:
            present = Present.of(await self._kv.get(self._key))
            if self._identity.incarnation in present.replaced:
                self.replaced.set()
                return False
            # Our own write, whose answer was lost; an entry that is gone; or one that was read late: go on from there.
            try:
                await self._write_over(present)
            except KeyExists:
                return False
        return True

    async def _write_over(self, present: Present) -> None:
        if present.incarnation not in ("", self._identity.incarnation, *self._former):
            self._former = (*present.replaced, *self._former, present.incarnation)[-REPLACED_MAX:]
        await self._write(present.revision)

    async def _write(self, revision: int) -> None:
        if revision == 0:
            self._revision = await self._kv.create(self._key, self._value(), ENTRY_TTL_S)
        else:
            self._revision = await self._kv.update(self._key, self._value(), revision, ENTRY_TTL_S)
        now = self._monotonic()
        # A beat that came late (this process was stopped, or the bus away) leaves a gap in what was seen.
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
