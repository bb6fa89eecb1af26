"""The streams and buckets that every service needs: made, checked, and never begun anew where a server has lost them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from anchorwatch.bus.port import Bus, StreamMissing
from anchorwatch.core.errors import OtherStoreFormat, Unavailable
from anchorwatch.topology.streams import (
    AGENTS_BUCKET,
    ANCHORS_BUCKET,
    BUCKETS,
    EVENTS,
    FORMAT_KEY,
    MADE_AS,
    OBJECT_STORES,
    SHARDS_KEY,
    STREAMS,
    bucket_stream,
    journal_stream,
)

KEPT = (journal_stream(), EVENTS, bucket_stream(AGENTS_BUCKET))
"""The streams that nothing else could bring back, and that nobody would miss before harm is done."""


class StreamGone(Unavailable):
    """A stream that was there is not served any more, and must not be made anew."""

    code = "stream_gone"
    retryable = False


async def ensure_topology(bus: Bus) -> None:
    """Make every stream and bucket, or check that it is so. Each service does it, so that any may come first.

    Raises:
        OtherStoreFormat: as `check_format`; nothing was written. StreamGone: as `check_nothing_gone`. ConfigDiffers. Unavailable.
    """
    await check_format(bus)
    await check_nothing_gone(bus)
    await asyncio.gather(*(bus.ensure_stream(spec) for spec in STREAMS))
    await asyncio.gather(
        *(bus.ensure_bucket(spec) for spec in BUCKETS if spec.name != ANCHORS_BUCKET),
        *(bus.ensure_object_store(name) for name in OBJECT_STORES),
    )
    # Last: where it is, all else was (`check_nothing_gone`). It is a view of streams, too.
    await asyncio.gather(*(bus.ensure_bucket(spec) for spec in BUCKETS if spec.name == ANCHORS_BUCKET))


async def check_format(bus: Bus) -> None:
    """Check that the journal, if there is one, was made with this release's format and number of shards.

    Raises:
        OtherStoreFormat: it was not. Unavailable.
    """
    try:
        check_marker(await bus.stream_metadata(journal_stream()))
    except StreamMissing:
        return


def check_marker(found: Mapping[str, str]) -> None:
    """Check the metadata of a journal's stream.

    Raises:
        OtherStoreFormat: they are not what this release stores there.
    """
    if FORMAT_KEY not in found:
        raise OtherStoreFormat(
            "the store was made before its format was stored with it, and this release cannot read it",
            hint="start on another data directory; to read this store, use the release that made it",
        )
    for key, what in ((FORMAT_KEY, "format"), (SHARDS_KEY, "number of shards")):
        if found.get(key) != MADE_AS[key]:
            raise OtherStoreFormat(
                f"the store has {what} {found.get(key, 'unknown')}, this release reads {what} {MADE_AS[key]}",
                hint="start on another data directory, or use the release that made this store",
            )


async def check_nothing_gone(bus: Bus) -> None:
    """See that no stream is missing that was there.

    A server that cannot read a block of a stream when it starts may give up the whole stream, and say that there is none. On
    a journal that is empty every key is new and every run the first: all would be done again; without agents each event is
    nobody's. The view of anchors is only ever made behind them: where it is, they were.

    Raises:
        StreamGone: one is missing. Unavailable.
    """
    if not await _is_there(bus, bucket_stream(ANCHORS_BUCKET)):
        return
    for name in KEPT:
        # Behind the view: another service may be making all of them just now.
        if not await _is_there(bus, name):
            raise StreamGone(
                f"the stream {name} was there, and the server has none: it could not read its files when it started",
                hint="its log says why (`Error recreating stream`); stop the mesh and bring the stream's directory back from"
                " nats-aside/ or another copy (docs/protocol.md, Damage). No service begins it anew",
            )


async def _is_there(bus: Bus, stream: str) -> bool:
    try:
        await bus.stream_state(stream)
    except StreamMissing:
        return False
    return True
