"""A server closes a connection that reads its answers too slowly; many large reads must not cause that."""

from __future__ import annotations

import asyncio
from pathlib import Path

from anchorwatch.bus import jetstream
from anchorwatch.bus.port import Message, Page
from anchorwatch.topology.streams import StreamSpec

from tests.support.nats_server import running_server

STREAM = StreamSpec("S", ("s.>",), atomic_batches=True)
MESSAGES, BYTES = 250, 100_000
READERS = 40
"""Together they ask for 1 GB, of which a server sends 64 MiB ahead."""


async def test_many_large_reads_keep_the_connection(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        lost: list[str] = []
        bus = await jetstream.connect(server.url, user=None, password=None, name="n", on_error=lost.append)
        try:
            await bus.ensure_stream(STREAM)
            for n in range(MESSAGES):
                await bus.publish(Message(f"s.{n}", b"x" * BYTES, f"m-{n}"))

            async def last() -> int:
                return len((await bus.last("S", ["s.>"], timeout_s=60.0)).messages)

            async def whole() -> int:
                read, page = 0, Page((), 0, more=True)
                while page.more:
                    page = await bus.range("S", "s.>", page.up_to + 1, timeout_s=60.0)
                    read += len(page.messages)
                return read

            reads = [last() if n % 2 else whole() for n in range(READERS)]
            assert set(await asyncio.gather(*reads)) == {MESSAGES}
            assert lost == []
        finally:
            await bus.close()
