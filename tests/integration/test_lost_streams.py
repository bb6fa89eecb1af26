"""A stream that its server has lost: no service makes it again by itself."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from anchorwatch.bus import jetstream
from anchorwatch.bus.port import Message, StreamMissing
from anchorwatch.core.errors import ConfigDiffers
from anchorwatch.service.provisioning import (
    IRREPLACEABLE_STREAMS,
    StreamGone,
    check_streams_exist,
    ensure_topology,
)
from anchorwatch.topology.streams import (
    AGENTS_BUCKET,
    ANCHORS_BUCKET,
    EVENTS,
    LEASES_BUCKET,
    StreamSpec,
    bucket_stream,
    journal_stream,
)

from tests.support.journal_writer import JournalWriter
from tests.support.nats_server import NatsServer, running_server
from tests.support.waiting import eventually

COMPRESSED = b"cmp"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with running_server(tmp_path / "n") as made:
        yield made


async def test_lost_journal_is_never_made_again(server: NatsServer, tmp_path: Path) -> None:
    """Change one byte of a compressed block and remove the index: at its start the server removes the whole stream."""
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    await ensure_topology(bus)
    await ensure_topology(bus)
    for n in range(80):
        await bus.publish(Message("aw.journal.0.default.s.art.x", os.urandom(250_000), f"m{n}"))
    await bus.close()
    server.kill9()
    [files] = server.directory.rglob(f"streams/{journal_stream()}")
    copy = shutil.copytree(files, tmp_path / "copy")
    block = files / "msgs" / "1.blk"
    whole = block.read_bytes()
    assert whole.startswith(COMPRESSED)
    block.write_bytes(whole[:60] + bytes([whole[60] ^ 1]) + whole[61:])
    server.start()
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    try:
        with pytest.raises(StreamMissing):
            await bus.stream_state(journal_stream())
        assert not block.exists()
        for ask in (check_streams_exist, ensure_topology):
            with pytest.raises(StreamGone, match=f"{journal_stream()} is missing"):
                await ask(bus)
        with pytest.raises(StreamMissing):
            await bus.stream_state(journal_stream())
    finally:
        await bus.close()
    server.stop()
    shutil.copytree(copy, files, dirs_exist_ok=True)
    server.start()
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    try:
        await ensure_topology(bus)
        assert (await bus.stream_state(journal_stream())).messages == 80
    finally:
        await bus.close()


@pytest.mark.parametrize("name", IRREPLACEABLE_STREAMS)
async def test_lost_stream_without_a_copy_is_never_made_again(server: NatsServer, name: str) -> None:
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    try:
        await ensure_topology(bus)
        await bus.request(f"$JS.API.STREAM.DELETE.{name}", b"", 5.0)
        with pytest.raises(StreamGone, match=f"{name} is missing"):
            await ensure_topology(bus)
        with pytest.raises(StreamMissing):
            await bus.stream_state(name)
    finally:
        await bus.close()


async def test_anchor_view_is_made_last(server: NatsServer) -> None:
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    try:
        await bus.ensure_stream(StreamSpec(bucket_stream(AGENTS_BUCKET), ("another.>",)))
        with pytest.raises(ConfigDiffers):
            await ensure_topology(bus)

        async def is_begun_beside_it() -> bool:
            with contextlib.suppress(StreamMissing):
                return bool(await bus.stream_state(bucket_stream(LEASES_BUCKET)))
            return False

        await eventually(is_begun_beside_it)
        with pytest.raises(StreamMissing):
            await bus.stream_state(bucket_stream(ANCHORS_BUCKET))
    finally:
        await bus.close()


async def test_event_stream_is_made_again_after_the_view_is_removed(
    server: NatsServer,
) -> None:
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    try:
        await ensure_topology(bus)
        await JournalWriter(bus, "s").created()
        await bus.request(f"$JS.API.STREAM.DELETE.{EVENTS}", b"", 5.0)
        with pytest.raises(StreamGone, match=f"{EVENTS} is missing"):
            await ensure_topology(bus)
        await bus.request(f"$JS.API.STREAM.DELETE.{bucket_stream(ANCHORS_BUCKET)}", b"", 5.0)
        await ensure_topology(bus)
        view = await bus.bucket(ANCHORS_BUCKET)

        async def copied() -> bool:
            return list(await view.keys()) == ["default.s"]

        await eventually(copied)
    finally:
        await bus.close()
