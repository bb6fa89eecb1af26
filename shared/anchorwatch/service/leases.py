"""Leadership for work that should happen once but may happen twice, such as probing.

A lease is never a fence: its holder may be suspended and resume after another process has taken the lease. The journal fences
the work that must happen once.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable

from anchorwatch.bus.port import Bus, Entry, KeyValue
from anchorwatch.core.errors import AnchorWatchError, Unavailable
from anchorwatch.core.names import check_token
from anchorwatch.service.context import Identity
from anchorwatch.topology.streams import LEASES_BUCKET

RENEWALS_PER_LEASE = 3


def lease_key(name: str) -> str:
    """The key of the lease ``name``."""
    return f"lease.{check_token(name, 'lease')}"


class Leases:
    """The leases that this process holds. It checks before each unit of work: ``if await leases.hold("probe-fleet"): …``."""

    def __init__(
        self, bus: Bus, identity: Identity, lease_s: float, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._bus = bus
        self._identity = identity
        self._lease_s = lease_s
        # The server's unit is one second.
        self._ttl_s = max(1, math.ceil(lease_s))
        self._monotonic = monotonic
        self._bucket: KeyValue | None = None
        self._held: dict[str, tuple[int, float]] = {}

    async def hold(self, name: str) -> bool:
        """Whether this process leads ``name`` now; acquires a free lease, and renews its own after a third of the term.

        A holder that does not call this for a whole term loses the lease. While the bus is unavailable, no process leads.
        """
        held = self._held.get(name)
        if held is not None and self._monotonic() - held[1] < self._lease_s / RENEWALS_PER_LEASE:
            return True
        requested_at = self._monotonic()
        try:
            revision = await self._acquire(lease_key(name))
        except AnchorWatchError:
            # Another process was first, or the bus is unavailable. The next call tries again.
            revision = None
        if revision is None:
            self._held.pop(name, None)
            return False
        # Counted from before the request, so that the term ends here before it ends on the server.
        self._held[name] = (revision, requested_at)
        return True

    async def release(self) -> None:
        """Release all leases, so that other processes need not wait for their end."""
        held, self._held = self._held, {}
        for name, (revision, _) in held.items():
            with contextlib.suppress(AnchorWatchError):
                await self._kv.delete(lease_key(name), revision)

    @property
    def _kv(self) -> KeyValue:
        if self._bucket is None:
            raise Unavailable("this process holds no lease")
        return self._bucket

    async def _acquire(self, key: str) -> int | None:
        if self._bucket is None:
            self._bucket = await self._bus.bucket(LEASES_BUCKET)
        entry = await self._bucket.get(key)
        if entry is None:
            return await self._bucket.create(key, self._value, self._ttl_s)
        if self._is_mine(entry):
            return await self._bucket.update(key, self._value, entry.revision, self._ttl_s)
        return None

    def _is_mine(self, entry: Entry) -> bool:
        """Whether this instance holds the lease: this process, or a former incarnation, which is dead."""
        try:
            value = json.loads(entry.value)
            return (value["service"], value["instance"]) == (self._identity.service, self._identity.instance)
        except (ValueError, KeyError, TypeError):
            return False

    @property
    def _value(self) -> bytes:
        mine = self._identity
        return json.dumps(
            {"service": mine.service, "instance": mine.instance, "incarnation": mine.incarnation}
        ).encode()
