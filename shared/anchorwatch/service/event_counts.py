"""The number of events by their outcome, which each observer leaves in the bucket of leases for the gateway's metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping

from anchorwatch.bus.port import Bus
from anchorwatch.topology.streams import LEASES_BUCKET

_PREFIX = "events."
OUTCOMES = (
    "routed",
    "unwanted",
    "refused",
    "malformed",
    "malformed_unlisted",
    "no_workspace",
    "unknown_workspace",
)


async def write_counts(bus: Bus, instance: str, counts: Mapping[str, int]) -> None:
    """Replace the counts of an observer.

    Raises:
        Unavailable.
    """
    await (await bus.bucket(LEASES_BUCKET)).put(f"{_PREFIX}{instance}", json.dumps(counts).encode())


async def read_counts(bus: Bus) -> dict[tuple[str, str], int]:
    """The counts by (observer, outcome); each observer counts from 0 when it starts.

    Raises:
        Unavailable.
    """
    bucket = await bus.bucket(LEASES_BUCKET)
    found: dict[tuple[str, str], int] = {}
    for key in await bucket.keys():
        entry = await bucket.get(key) if key.startswith(_PREFIX) else None
        if entry is not None and entry.value:
            counts = json.loads(entry.value)
            instance = key.removeprefix(_PREFIX)
            found |= {(instance, outcome): int(counts.get(outcome, 0)) for outcome in OUTCOMES}
    return found
