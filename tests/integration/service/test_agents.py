"""The agent directory on a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from anchorwatch.bus.port import Bus
from anchorwatch.core.errors import BadInput, NotFound
from anchorwatch.core.names import SessionRef
from anchorwatch.service.agents import AgentDirectory

from tests.support.packs import bench_agent, load

WS = "default"


@pytest.fixture
async def directory(bus: Bus) -> AgentDirectory:
    return await AgentDirectory.open(bus, load)


async def test_applied_agent_is_version_one(directory: AgentDirectory, tmp_path: Path) -> None:
    applied = await directory.apply(WS, bench_agent(tmp_path))
    assert applied.version == 1
    assert await directory.get(WS, "keeper") == applied
    assert await directory.get(WS, "keeper@1") == applied


async def test_identical_definition_keeps_its_version(directory: AgentDirectory, tmp_path: Path) -> None:
    first = await directory.apply(WS, bench_agent(tmp_path))
    assert await directory.apply(WS, bench_agent(tmp_path, version=7)) == first


async def test_older_version_never_changes(directory: AgentDirectory, tmp_path: Path) -> None:
    first = await directory.apply(WS, bench_agent(tmp_path))
    second = await directory.apply(WS, bench_agent(tmp_path, description="new"))
    assert second.version == 2
    assert await directory.get(WS, "keeper@1") == first
    assert (await directory.get(WS, "keeper")).description == "new"


async def test_write_of_one_process_is_visible_to_another_at_once(bus: Bus, tmp_path: Path) -> None:
    mine, theirs = await AgentDirectory.open(bus, load), await AgentDirectory.open(bus, load)
    assert await theirs.all(WS) == []
    applied = await mine.apply(WS, bench_agent(tmp_path))
    await mine.bind(SessionRef(WS, "fleet"), "keeper")
    assert await theirs.all(WS) == [applied]
    assert await theirs.bindings(WS) == {"fleet": "keeper"}
    assert await theirs.workspaces() == [WS]


async def test_unbound_session_is_removed(directory: AgentDirectory) -> None:
    for session in ("a", "b"):
        await directory.bind(SessionRef(WS, session), "keeper")
    assert await directory.bindings(WS) == {"a": "keeper", "b": "keeper"}
    await directory.unbind(SessionRef(WS, "a"))
    assert await directory.bindings(WS) == {"b": "keeper"}


async def test_workspaces_do_not_see_each_other(directory: AgentDirectory, tmp_path: Path) -> None:
    await directory.apply("one", bench_agent(tmp_path))
    await directory.bind(SessionRef("one", "s"), "keeper")
    assert await directory.bindings("two") == {}
    with pytest.raises(NotFound):
        await directory.get("two", "keeper")


async def test_concurrent_writers_create_versions_without_gaps(bus: Bus, tmp_path: Path) -> None:
    directories = [await AgentDirectory.open(bus, load) for _ in range(4)]
    specs = [bench_agent(tmp_path, description=f"d{index}") for index in range(4)]
    applied = await asyncio.gather(*(d.apply(WS, s) for d, s in zip(directories, specs, strict=True)))
    assert sorted(spec.version for spec in applied) == [1, 2, 3, 4]
    assert (await directories[0].get(WS, "keeper")).version == 4


async def test_version_of_a_dead_writer_becomes_current(
    bus: Bus, directory: AgentDirectory, tmp_path: Path
) -> None:
    orphan = bench_agent(tmp_path, description="orphan")
    bucket = await bus.bucket("agents")
    await bucket.create(f"agent.{WS}.keeper.1", orphan.model_dump_json().encode())
    applied = await directory.apply(WS, bench_agent(tmp_path, description="next"))
    assert applied.version == 2
    assert (await directory.get(WS, "keeper@1")).description == "orphan"


async def test_unreadable_entry_hides_no_other(bus: Bus, directory: AgentDirectory, tmp_path: Path) -> None:
    bucket = await bus.bucket("agents")
    await bucket.put(f"agent.{WS}.broken", b"\xff")
    await bucket.put(f"session.{WS}.broken", b"[]")
    applied = await directory.apply(WS, bench_agent(tmp_path))
    assert await directory.all(WS) == [applied]
    assert await directory.bindings(WS) == {}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"pack": "none"}, "unknown pack 'none'"),
        ({"grants": ("look", "explode")}, "no tool 'explode'"),
        ({"subscriptions": ("a..b",)}, "'a..b' is not an event filter"),
        ({"subscriptions": ("a.>.b",)}, "not an event filter"),
        ({"subscriptions": ("a*",)}, "not an event filter"),
        ({"subscriptions": ("",)}, "not an event filter"),
    ],
)
async def test_invalid_definition_is_refused_with_the_reason(
    directory: AgentDirectory, tmp_path: Path, changes: dict[str, object], says: str
) -> None:
    with pytest.raises(BadInput, match=says.replace(".", r"\.").replace("*", r"\*")):
        await directory.apply(WS, bench_agent(tmp_path, **changes))


async def test_check_of_the_pack_runs(directory: AgentDirectory, tmp_path: Path) -> None:
    spec = bench_agent(tmp_path).model_copy(update={"config": {}})
    with pytest.raises(BadInput, match="needs a directory"):
        await directory.apply(WS, spec)


async def test_read_may_return_a_version_within_its_maximum_age(
    directory: AgentDirectory, bus: Bus, tmp_path: Path
) -> None:
    await directory.apply(WS, bench_agent(tmp_path))
    assert (await directory.get(WS, "keeper", age_max_s=60)).version == 1
    elsewhere = await AgentDirectory.open(bus, load)
    await elsewhere.apply(WS, bench_agent(tmp_path, description="new"))
    assert (await directory.get(WS, "keeper", age_max_s=60)).version == 1
    assert (await directory.get(WS, "keeper")).version == 2
    assert (await directory.get(WS, "keeper", age_max_s=60)).version == 2
