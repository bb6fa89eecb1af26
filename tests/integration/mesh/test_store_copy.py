"""What a NATS server takes away of a journal when it starts is kept, said, and can be brought back but for what is damaged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from anchorwatch.bus import jetstream
from anchorwatch.bus.port import Message, StreamMissing
from anchorwatch.mesh.store_copy import StoreCopy
from anchorwatch.service.provisioning import ensure_topology
from anchorwatch.topology.streams import EVENTS, journal_stream

from tests.support.nats_server import NatsServer, running_server

COUNT = 80


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with running_server(tmp_path / "n") as made:
        yield made


async def filled(server: NatsServer) -> Path:
    """Enough for two full blocks and a newest one; returns where they are, of a server that was killed."""
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    await ensure_topology(bus)
    for n in range(COUNT):
        await bus.publish(Message("aw.journal.0.default.s.art.x", b"%4d" % n + os.urandom(250_000)))
    await bus.close()
    server.kill9()
    [blocks] = server.directory.rglob(f"streams/{journal_stream()}/msgs")
    return blocks


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


async def sequences(server: NatsServer) -> int:
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    try:
        return (await bus.stream_state(journal_stream())).messages
    finally:
        await bus.close()


async def test_start_that_removes_nothing_leaves_no_copy(server: NatsServer, tmp_path: Path) -> None:
    await filled(server)
    copy = StoreCopy(server.directory / "store", tmp_path / "aside")
    copy.take()
    server.start()
    assert copy.compare() == ""
    assert await sequences(server) == COUNT
    assert not list((tmp_path / "aside").iterdir())


async def test_removed_journal_is_restored_except_its_damaged_block(
    server: NatsServer, tmp_path: Path
) -> None:
    blocks = await filled(server)
    copy = StoreCopy(server.directory / "store", tmp_path / "aside")
    flip(blocks / "1.blk", 60)
    copy.take()
    server.start()
    with pytest.raises(StreamMissing):
        await sequences(server)
    said = copy.compare()
    [aside] = (tmp_path / "aside").iterdir()
    assert "1.blk" in said
    assert str(aside) in said
    server.stop()
    shutil.copytree(aside, server.directory / "store", dirs_exist_ok=True)
    (blocks / "1.blk").unlink()
    server.start()
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    try:
        await ensure_topology(bus)
        [(first, last)] = await bus.holes(journal_stream())
        assert first == 1
        assert (await bus.stream_state(journal_stream())).messages == COUNT - last
    finally:
        await bus.close()


def test_loss_at_a_failed_start_is_reported_at_the_next(tmp_path: Path) -> None:
    blocks = tmp_path / "store" / "jetstream" / "$G" / "streams" / journal_stream() / "msgs"
    blocks.mkdir(parents=True)
    (blocks / "1.blk").write_bytes(b"cmp, and all that was")
    copy = StoreCopy(tmp_path / "store", tmp_path / "aside")
    assert copy.take() == ""
    (blocks / "1.blk").unlink()
    assert "1.blk" in copy.take()
    assert copy.compare() == ""
    [kept] = (tmp_path / "aside").rglob("1.blk")
    assert kept.read_bytes() == b"cmp, and all that was"


@pytest.mark.parametrize(
    ("left", "is_less"),
    [
        ({"2.blk": b"newest"}, False),
        ({"1.blk": b"cmp", "2.blk": b"newest"}, False),
        ({"1.blk": b"cmp of old", "2.blk": b"new"}, True),
        ({}, True),
    ],
    ids=["old ones went", "some old ones went", "the newest was cut off", "all is gone"],
)
def test_expired_events_are_not_reported_as_lost(
    tmp_path: Path, left: dict[str, bytes], *, is_less: bool
) -> None:
    blocks = tmp_path / "store" / "jetstream" / "$G" / "streams" / EVENTS / "msgs"
    blocks.mkdir(parents=True)
    for name, content in {"1.blk": b"cmp of old", "2.blk": b"newest"}.items():
        (blocks / name).write_bytes(content)
    copy = StoreCopy(tmp_path / "store", tmp_path / "aside")
    copy.take()
    shutil.rmtree(blocks)
    for name, content in left.items():
        blocks.mkdir(exist_ok=True)
        (blocks / name).write_bytes(content)
    assert bool(copy.compare()) is is_less


async def test_newest_block_is_kept_when_the_server_cuts_it_off(server: NatsServer, tmp_path: Path) -> None:
    blocks = await filled(server)
    newest = max(blocks.glob("*.blk"), key=lambda path: int(path.stem))
    size = newest.stat().st_size
    copy = StoreCopy(server.directory / "store", tmp_path / "aside")
    flip(newest, size - 1000)
    copy.take()
    server.start()
    assert await sequences(server) < COUNT
    assert newest.name in copy.compare()
    [kept] = (tmp_path / "aside").rglob(newest.name)
    assert kept.stat().st_size == size
