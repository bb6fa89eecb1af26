"""The streams and buckets of a mesh: created and checked at each start, and never recreated after a server has lost them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping

from anchorwatch.bus.port import Bus, StreamMissing
from anchorwatch.core.errors import OtherStoreFormat, Unavailable
from anchorwatch.settings import Settings
from anchorwatch.topology.streams import (
    AGENTS_BUCKET,
    ANCHORS_BUCKET,
    BUCKETS,
    EVENTS,
    EVENTS_SPEC,
    FORMAT_KEY,
    MADE_AS,
    OBJECT_STORES,
    SHARDS_KEY,
    STREAMS,
    StreamLimits,
    bucket_stream,
    journal_stream,
)

IRREPLACEABLE_STREAMS = (journal_stream(), EVENTS, bucket_stream(AGENTS_BUCKET))
"""The streams that cannot be rebuilt, and whose loss would go unnoticed before it does harm."""
EVENTS_DISK_SHARE = 1 / 8
"""Of the store's disk: publishers cannot fill it."""


class StreamGone(Unavailable):
    """A stream that existed before is missing, and must not be recreated."""

    code = "stream_gone"
    retryable = False


def events_limits(settings: Settings) -> StreamLimits:
    """The limits of `EVENTS`. Where the store is on this machine and no limit is set, it is a share of the disk."""
    bytes_max = settings.events_bytes_max
    store = settings.data_dir / "nats"
    if "events_bytes_max" not in settings.model_fields_set and store.is_dir():
        bytes_max = min(bytes_max, int(shutil.disk_usage(store).total * EVENTS_DISK_SHARE))
    return StreamLimits(bytes_max, settings.events_age_s, settings.event_bytes_max)


async def ensure_topology(bus: Bus, events: StreamLimits = EVENTS_SPEC.limits) -> None:
    """Create or check every stream and bucket. Each service calls it, so that they can start in any order.

    ``events``: the limits of `EVENTS` if it is created; the observer sets those of an existing one.

    Raises:
        OtherStoreFormat: nothing was written. StreamGone: as `check_streams_exist`. ConfigDiffers. Unavailable.
    """
    await check_format(bus)
    await check_streams_exist(bus)
    specs = (spec.with_limits(events) if spec.name == EVENTS else spec for spec in STREAMS)
    await asyncio.gather(*(bus.ensure_stream(spec) for spec in specs))
    await asyncio.gather(
        *(bus.ensure_bucket(spec) for spec in BUCKETS if spec.name != ANCHORS_BUCKET),
        *(bus.ensure_object_store(name) for name in OBJECT_STORES),
    )
    # Last: its existence proves that all others existed (`check_streams_exist`).
    await asyncio.gather(*(bus.ensure_bucket(spec) for spec in BUCKETS if spec.name == ANCHORS_BUCKET))


async def check_format(bus: Bus) -> None:
    """Check that an existing journal has this release's format and number of shards.

    Raises:
        OtherStoreFormat. Unavailable.
    """
    try:
        check_marker(await bus.stream_metadata(journal_stream()))
    except StreamMissing:
        return


def check_marker(metadata: Mapping[str, str]) -> None:
    """Check the metadata of a journal's stream.

    Raises:
        OtherStoreFormat: they differ from the metadata of this release.
    """
    if FORMAT_KEY not in metadata:
        raise OtherStoreFormat(
            "the store was made before its format was stored with it, and this release cannot read it",
            hint="start on another data directory; to read this store, use the release that made it",
        )
    for key, what in ((FORMAT_KEY, "format"), (SHARDS_KEY, "number of shards")):
        if metadata.get(key) != MADE_AS[key]:
            raise OtherStoreFormat(
                f"the store has {what} {metadata.get(key, 'unknown')}, this release reads {what} {MADE_AS[key]}",
                hint="start on another data directory, or use the release that made this store",
            )


async def check_streams_exist(bus: Bus) -> None:
    """Check that no irreplaceable stream is missing that existed before (INV-909).

    A server that cannot read a block of a stream at its start may remove the whole stream. In an empty journal, each key is new
    and each run is the first, so all effects would be repeated; without agents, no session receives an event. The view of
    anchors is created after these streams: if it exists, they existed.

    Raises:
        StreamGone. Unavailable.
    """
    if not await _exists(bus, bucket_stream(ANCHORS_BUCKET)):
        return
    for name in IRREPLACEABLE_STREAMS:
        # After the view: another service may be creating all of them now.
        if not await _exists(bus, name):
            raise StreamGone(
                f"the stream {name} is missing: the server could not read its files when it started, and removed it",
                hint="see `Error recreating stream` in the server's log; stop the mesh and restore the stream's directory from"
                " nats-aside/ or another copy (docs/protocol.md, Damage); no service recreates the stream",
            )


async def _exists(bus: Bus, stream: str) -> bool:
    try:
        await bus.stream_state(stream)
    except StreamMissing:
        return False
    return True
