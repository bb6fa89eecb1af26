"""The view of anchors is not synced for each message: the server copies lost messages again from the journal."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from anchorwatch.bus import jetstream
from anchorwatch.bus.port import Bus, Message, Stored
from anchorwatch.core.errors import Unavailable
from anchorwatch.service.provisioning import ensure_topology
from anchorwatch.topology.streams import ANCHORS_BUCKET, bucket_stream, journal_stream

from tests.support.nats_server import running_server
from tests.support.waiting import eventually

SESSIONS = 10
COPIES_MIN = 200


@pytest.mark.parametrize("share", [0.9, 0.4, 0.0])
async def test_view_is_complete_again_after_a_power_cut(tmp_path: Path, share: float) -> None:
    with running_server(tmp_path / "nats") as server:
        bus = await jetstream.connect(server.url, user=None, password=None, name="test")
        await ensure_topology(bus)
        writers = [asyncio.create_task(write(bus, f"s{number}")) for number in range(SESSIONS)]
        await eventually(lambda: copied(bus), what="anchors are copied")
        server.kill9()
        await asyncio.gather(*writers)
        cut_short(server.directory / "store", share)
        server.start()
        await eventually(lambda: is_whole(bus), within_s=60, what="the view is what the journal says")
        assert len(await view(bus)) == SESSIONS
        await bus.close()


async def write(bus: Bus, session: str) -> None:
    """Write anchors until the server is killed."""
    with contextlib.suppress(Unavailable):
        for number in range(100_000):
            subject = f"aw.journal.0.default.{session}.p.anchor.change"
            await bus.publish(Message(subject, str(number).encode()), timeout_s=1.0)


def cut_short(store: Path, share: float) -> None:
    """Truncate the view's file on disk, as a power cut does."""
    messages = next(store.rglob(bucket_stream(ANCHORS_BUCKET))) / "msgs"
    newest = max(messages.glob("*.blk"), key=lambda block: int(block.stem))
    with newest.open("r+b") as block:
        block.truncate(round(newest.stat().st_size * share))


async def copied(bus: Bus) -> bool:
    """Whether the view holds every session, each rewritten several times."""
    state = await bus.stream_state(bucket_stream(ANCHORS_BUCKET))
    return state.last_sequence >= COPIES_MIN and len(await view(bus)) == SESSIONS


async def is_whole(bus: Bus) -> bool:
    with contextlib.suppress(Unavailable):
        return await view(bus) == await journal(bus)
    return False


def sequence_of(stored: Stored) -> int:
    return stored.sequence


async def journal(bus: Bus) -> dict[str, bytes]:
    page = await bus.last(journal_stream(), ["aw.journal.0.*.*.p.anchor.*"])
    return {stored.subject.split(".")[4]: stored.payload for stored in sorted(page.messages, key=sequence_of)}


async def view(bus: Bus) -> dict[str, bytes]:
    bucket = await bus.bucket(ANCHORS_BUCKET)
    entries = [await bucket.get(key) for key in await bucket.keys()]
    return {entry.key.split(".")[1]: entry.value for entry in entries if entry is not None}
