"""A session's records as they come, as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

from anchorwatch.bus.port import Consumer, ConsumerSpec
from anchorwatch.core.errors import AnchorWatchError, NotFound
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.timeline import narrate
from anchorwatch.topology.subjects import SessionSubjects
from sse_starlette import ServerSentEvent

from anchorwatch_gateway.parts import Parts

BATCH = 64
WAIT_S = 1.0


async def follow(parts: Parts, ref: SessionRef, after: int) -> AsyncIterator[ServerSentEvent]:
    """The records of the session behind ``after``, without end; ends when the gateway stops.

    An event's id is its journal sequence: whoever comes back with the last one misses nothing and sees nothing twice.
    """
    consumer: Consumer | None = None
    parts.streams.open()
    try:
        while not parts.stopping.is_set():
            try:
                consumer = consumer or await _attach(parts, ref, after)
                for delivery in await consumer.fetch(BATCH, WAIT_S):
                    await delivery.ack()
                    stored = delivery.stored
                    # A lost ack brings a record once more.
                    if stored.sequence <= after:
                        continue
                    after = stored.sequence
                    parts.seen.note(after)
                    if entry := narrate(stored):
                        data = json.dumps(entry.to_json(), ensure_ascii=False)
                        yield ServerSentEvent(data, event="record", id=str(after))
            except AnchorWatchError as error:
                # The bus is away, or a restart of it has forgotten the consumer: attach anew behind the last record.
                if not isinstance(error, NotFound):
                    await _pause(parts)
                consumer = None
    finally:
        parts.streams.close()
        if consumer is not None:
            with contextlib.suppress(AnchorWatchError):
                await consumer.close()


async def _attach(parts: Parts, ref: SessionRef, after: int) -> Consumer:
    spec = ConsumerSpec(
        parts.committer.stream, (SessionSubjects(ref).everything,), durable=None, start_sequence=after + 1
    )
    return await parts.bus.consumer(spec)


async def _pause(parts: Parts) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WAIT_S):
            await parts.stopping.wait()
