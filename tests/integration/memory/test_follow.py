"""Memory follows a real journal through kills, lost files, old files and other journals, and ends with equal content."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.bus import jetstream
from anchorwatch.bus.port import Bus, Message
from anchorwatch.service.provisioning import ensure_topology
from anchorwatch_memory.store import Store

from tests.support.in_process import Services, services_on
from tests.support.nats_server import NatsServer, running_server
from tests.support.waiting import eventually
from tests.unit.memory.test_store import LIFE, WHOLE

STREAM = "JOURNAL_0"
CONSUMER = "memory-memory-1"
PAGE_BYTES = 4096


async def write(bus: Bus, start: int = 0, end: int | None = None) -> int:
    """Store the records; returns the last sequence of the stream."""
    for stored in LIFE.messages[start:end]:
        await bus.publish(Message(stored.subject, stored.payload))
    return (await bus.stream_state(STREAM)).last_sequence


async def write_lives(bus: Bus, count: int) -> None:
    for _ in range(count):
        await write(bus)


def path_of(services: Services) -> Path:
    return services.directory / "memory" / "memory-1.db"


def content(path: Path) -> dict[str, Sequence[tuple[object, ...]]]:
    store = Store(path)
    try:
        return store.dump()
    finally:
        store.close()


def position_of(path: Path) -> int:
    if not path.exists():
        return 0
    store = Store(path)
    try:
        return store.position().sequence
    finally:
        store.close()


async def reached(path: Path, sequence: int) -> None:
    """Wait until the file holds everything up to ``sequence``."""

    async def there() -> bool:
        return position_of(path) >= sequence

    await eventually(there, 60, f"projections up to {sequence}")


def without_times(dump: dict[str, Any]) -> dict[str, Any]:
    """The content that does not depend on the time of the stream."""
    return {name: rows for name, rows in dump.items() if name not in ("progress", "timeline")}


async def test_projections_equal_the_journal(services: Services, bus: Bus) -> None:
    await services.start("memory")
    last = await write(bus)
    await reached(path_of(services), last)
    found = content(path_of(services))
    assert without_times(found) == without_times(WHOLE)
    assert len(found["timeline"]) == len(WHOLE["timeline"])


async def test_removed_file_is_rebuilt_with_equal_content(services: Services, bus: Bus) -> None:
    await services.start("memory")
    last = await write(bus)
    await reached(path_of(services), last)
    await services.stop("memory-1")
    before = content(path_of(services))
    shutil.rmtree(path_of(services).parent)
    await services.start("memory")
    await reached(path_of(services), last)
    assert content(path_of(services)) == before


async def test_old_copy_of_the_file_catches_up(services: Services, bus: Bus, tmp_path: Path) -> None:
    await services.start("memory")
    half = await write(bus, 0, 20)
    await reached(path_of(services), half)
    await services.stop("memory-1")
    shutil.copytree(path_of(services).parent, tmp_path / "copy")
    await services.start("memory")
    last = await write(bus, 20)
    await reached(path_of(services), last)
    await services.stop("memory-1")
    newest = content(path_of(services))
    shutil.rmtree(path_of(services).parent)
    shutil.copytree(tmp_path / "copy", path_of(services).parent)
    await services.start("memory")
    await reached(path_of(services), last)
    assert content(path_of(services)) == newest


async def test_removed_consumer_restarts_where_the_file_ends(services: Services, bus: Bus) -> None:
    await services.start("memory")
    half = await write(bus, 0, 20)
    await reached(path_of(services), half)
    await bus.delete_consumer(STREAM, CONSUMER)
    last = await write(bus, 20)
    await reached(path_of(services), last)
    assert without_times(content(path_of(services))) == without_times(WHOLE)


async def test_file_of_another_journal_is_replaced_and_kept(
    services: Services, bus: Bus, tmp_path: Path
) -> None:
    await services.start("memory")
    whole = await write(bus)
    await reached(path_of(services), whole)
    await services.stop("memory-1")
    before = content(path_of(services))
    with running_server(tmp_path / "other", sync_always=False) as other:
        async with services_on(other.url, services.directory) as elsewhere:
            there = await jetstream.connect(other.url, user=None, password=None, name="test")
            await ensure_topology(there)
            last = await write(there, 0, 8)
            await elsewhere.start("memory")
            await reached(path_of(services), last)
            await elsewhere.stop("memory-1")
            await there.close()
    # Behind what that journal holds, and what it lost for all that memory knows: the hold of the mesh.
    assert content(path_of(services))["progress"][0][1] == whole + 1
    kept, other_journal = path_of(services), content(path_of(services))
    assert [row[1] for row in other_journal["sessions"]] == ["fleet"]
    await services.start("memory")
    await reached(kept, whole)
    assert content(kept.with_name(f"{kept.name}.{whole + 1}.before")) == other_journal
    assert content(kept.with_name(f"{kept.name}.{whole}.before")) == before, "it is not replaced"


@pytest.mark.parametrize("whole_pages", [1, 2, 10])
async def test_file_damaged_in_the_middle_is_rebuilt(services: Services, bus: Bus, whole_pages: int) -> None:
    await services.start("memory")
    last = await write(bus)
    await reached(path_of(services), last)
    await services.stop("memory-1")
    before = content(path_of(services))
    whole = path_of(services).read_bytes()
    kept = whole_pages * PAGE_BYTES
    path_of(services).write_bytes(whole[:kept] + b"\xa5" * (len(whole) - kept))
    await services.start("memory")

    async def asked() -> bool:
        question = b'{"workspace": "default", "session": "fleet"}'
        answer = json.loads(await bus.request("aw.rpc.memory.session", question, 5.0))
        return "result" in answer and answer["as_of"] == last

    await eventually(asked)
    assert content(path_of(services)) == before


async def test_erased_records_are_skipped(services: Services, bus: Bus) -> None:
    last = await write(bus)
    erased = await bus.purge(STREAM, "aw.journal.0.default.other.>")
    assert erased > 5
    await services.start("memory")
    await reached(path_of(services), last)
    assert [row[:2] for row in content(path_of(services))["sessions"]] == [
        ("default", "fleet"),
        ("elsewhere", "fleet"),
    ]


async def test_consumer_is_acked_up_to_the_position_of_the_file(services: Services, bus: Bus) -> None:
    await services.start("memory")
    last = await write(bus)

    async def acked() -> bool:
        return (await bus.consumer_states(STREAM))[CONSUMER].ack_floor_sequence == last

    await eventually(acked)
    made = (await bus.consumer_states(STREAM))[CONSUMER]
    await services.stop("memory-1")
    await services.start("memory")
    assert (await bus.consumer_states(STREAM))[CONSUMER].delivered_sequence == made.delivered_sequence


class Process:
    """A memory service in a process of its own, for ``kill -9``."""

    def __init__(self, url: str, directory: Path) -> None:
        environment = {
            **os.environ,
            "ANCHORWATCH_NATS_URL": url,
            "ANCHORWATCH_DATA_DIR": str(directory),
            "ANCHORWATCH_INSTANCE": "memory-1",
        }
        command = [
            sys.executable,
            "-c",
            "import sys; from anchorwatch.service.runner import main; sys.exit(main('memory'))",
        ]
        with (directory / "memory.log").open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


async def test_memory_killed_repeatedly_has_exact_content(
    server: NatsServer, bus: Bus, tmp_path: Path
) -> None:
    path = tmp_path / "memory" / "memory-1.db"
    process = Process(server.url, tmp_path)
    try:
        for round_ in range(5):
            before = (await bus.stream_state(STREAM)).last_sequence
            # The same records again: as sequences they are new, and they fold as odd as they may.
            writing = asyncio.create_task(write_lives(bus, 8))
            await reached(path, before + 1 + 37 * round_)
            process.kill()
            await writing
            process = Process(server.url, tmp_path)
        last = (await bus.stream_state(STREAM)).last_sequence
        await reached(path, last)
    finally:
        process.kill()
    killed = content(path)
    async with services_on(server.url, tmp_path / "fresh") as fresh:
        await fresh.start("memory")
        await reached(path_of(fresh), last)
    assert content(path_of(fresh)) == killed
