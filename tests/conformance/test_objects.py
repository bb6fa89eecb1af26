"""Object stores: immutable bytes under a name."""

from __future__ import annotations

import random

import pytest
from anchorwatch.bus.port import Bus, ObjectStore
from anchorwatch.core.errors import Conflict, NotFound

from tests.conformance.worlds import World


async def make(world: World, bus: Bus) -> ObjectStore:
    await bus.ensure_object_store(world.stream("O"))
    await bus.ensure_object_store(world.stream("O"))
    return await bus.object_store(world.stream("O"))


@pytest.mark.parametrize("size", [0, 1, 128 * 1024, 128 * 1024 + 1, 9_000_000])
async def test_put_value_is_read_back(world: World, bus: Bus, size: int) -> None:
    store = await make(world, bus)
    data = random.Random(size).randbytes(size)
    assert await store.get("a/name with spaces.bin") is None
    await store.put("a/name with spaces.bin", data)
    assert await store.get("a/name with spaces.bin") == data
    assert (
        await (await (await world.connect()).object_store(world.stream("O"))).get("a/name with spaces.bin")
        == data
    )


async def test_object_accepts_the_same_bytes_again_only(world: World, bus: Bus) -> None:
    store = await make(world, bus)
    await store.put("a", b"1")
    await store.put("a", b"1")
    with pytest.raises(Conflict):
        await store.put("a", b"2")
    assert await store.get("a") == b"1"


async def test_deleted_object_leaves_nothing(world: World, bus: Bus) -> None:
    store = await make(world, bus)
    await store.put("a", b"secret" * 100_000)
    await store.put("b", b"kept")
    await store.delete("a")
    await store.delete("a")
    assert await store.get("a") is None
    assert await store.get("b") == b"kept"
    await store.put("a", b"another")
    assert await store.get("a") == b"another"


async def test_missing_object_store_is_reported(world: World, bus: Bus) -> None:
    with pytest.raises(NotFound):
        await (await bus.object_store(world.stream("NOPE"))).get("a")
