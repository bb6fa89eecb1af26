"""Keeping artifacts: the same work is the same artifact, and its bytes are what was recorded."""

from __future__ import annotations

import asyncio

import pytest
from anchorwatch.bus.port import Bus
from anchorwatch.core.errors import Damaged, NotFound, TooLarge
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.artifacts import ARTIFACT_BYTES_MAX, ArtifactJournal, Kept, Provenance
from anchorwatch.journal.commit import Committer
from anchorwatch.topology.streams import ARTIFACTS_STORE, journal_stream

FLEET = SessionRef("default", "fleet")
ORIGIN = Provenance("key-1", "keeper@1", 3, "3.1.1", ("k-1",))


@pytest.fixture
def artifacts(bus: Bus) -> ArtifactJournal:
    return ArtifactJournal(bus, Committer(bus, journal_stream()), "test")


async def keep(artifacts: ArtifactJournal, data: bytes = b"report", origin: Provenance = ORIGIN) -> Kept:
    return await artifacts.keep(FLEET, "report.md", "text/markdown", data, origin, at_ms=1)


async def test_same_work_and_content_make_one_artifact(artifacts: ArtifactJournal, bus: Bus) -> None:
    kept = await asyncio.gather(*(keep(artifacts) for _ in range(8)))
    assert set(kept) == {kept[0]}
    assert (await bus.stream_state(journal_stream())).messages == 1
    assert await artifacts.read(FLEET, kept[0].artifact_id) == (kept[0], b"report")


async def test_other_content_or_maker_makes_another_artifact(artifacts: ArtifactJournal) -> None:
    ids = {
        (await keep(artifacts)).artifact_id,
        (await keep(artifacts, b"other")).artifact_id,
        (await keep(artifacts, origin=Provenance("key-2"))).artifact_id,
    }
    assert len(ids) == 3


async def test_oversized_artifact_is_refused(artifacts: ArtifactJournal) -> None:
    with pytest.raises(TooLarge):
        await keep(artifacts, b"x" * (ARTIFACT_BYTES_MAX + 1))


async def test_missing_artifact_or_bytes_are_reported(artifacts: ArtifactJournal, bus: Bus) -> None:
    with pytest.raises(NotFound):
        await artifacts.read(FLEET, "a-none")
    kept = await keep(artifacts)
    store = await bus.object_store(ARTIFACTS_STORE)
    await store.delete(f"default/fleet/{kept.artifact_id}")
    with pytest.raises(Damaged):
        await artifacts.read(FLEET, kept.artifact_id)
