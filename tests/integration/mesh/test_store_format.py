"""A store of another format: no service and no `up` writes to it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from anchorwatch.bus import jetstream
from anchorwatch.bus.port import Bus, Message
from anchorwatch.core.errors import OtherStoreFormat
from anchorwatch.service.provisioning import ensure_topology
from anchorwatch.topology.streams import FORMAT_KEY, JOURNAL_SPEC, MADE_AS, SHARDS_KEY, journal_stream

from tests.integration.mesh.meshes import SmallMesh
from tests.support.nats_server import NatsServer, running_server

RECORD = Message("aw.journal.0.default.s.art.x", b"a record of an older release")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with running_server(tmp_path / "n") as made:
        yield made


async def connect(server: NatsServer) -> Bus:
    return await jetstream.connect(server.url, user=None, password=None, name="n")


def digests(store: Path) -> dict[str, str]:
    files = sorted(path for path in store.rglob("*") if path.is_file())
    return {str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


async def test_new_mesh_stores_its_format_and_shard_count(server: NatsServer) -> None:
    bus = await connect(server)
    try:
        for _ in range(2):
            await ensure_topology(bus)
        assert await bus.stream_metadata(journal_stream()) == {FORMAT_KEY: "1", SHARDS_KEY: "1"}
    finally:
        await bus.close()


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({}, "before its format was stored"),
        ({**MADE_AS, FORMAT_KEY: "2"}, "has format 2, this release reads format 1"),
        ({**MADE_AS, SHARDS_KEY: "4"}, "has number of shards 4"),
    ],
)
async def test_services_write_nothing_to_another_format(
    server: NatsServer, metadata: dict[str, str], reason: str
) -> None:
    bus = await connect(server)
    try:
        await bus.ensure_stream(replace(JOURNAL_SPEC, metadata=metadata))
        await bus.publish(RECORD)
        with pytest.raises(OtherStoreFormat, match=reason) as refusal:
            await ensure_topology(bus)
        assert (refusal.value.code, refusal.value.retryable) == ("other_store_format", False)
        assert "another data directory" in refusal.value.hint
        assert (await bus.stream_state(journal_stream())).last_sequence == 1
    finally:
        await bus.close()
    streams = {path.name for path in server.directory.rglob("streams/*")}
    assert streams == {journal_stream()}


async def test_up_refuses_an_old_store_and_leaves_its_files(server: NatsServer, mesh: SmallMesh) -> None:
    bus = await connect(server)
    await bus.ensure_stream(replace(JOURNAL_SPEC, metadata={}))
    await bus.publish(RECORD)
    await bus.close()
    server.stop()
    store = mesh.data.nats_store
    shutil.copytree(server.directory / "store", store)
    before = digests(store)
    for mode in ((), ("--detach",)):
        ended = mesh.run(*mode)
        assert ended.returncode == OtherStoreFormat.exit_code
        assert "before its format was stored" in ended.stderr
        assert "another data directory" in ended.stderr
        assert digests(store) == before
    logged = map(json.loads, (mesh.data.logs / "supervisor.log").read_text().splitlines())
    assert "other_store_format" in {line.get("code") for line in logged}
