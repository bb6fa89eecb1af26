"""Buckets: compare-and-set, deletion, expiry."""

from __future__ import annotations

import asyncio

import pytest
from anchorwatch.bus.port import Bus, KeyExists, KeyValue, Message, StreamMissing
from anchorwatch.core.errors import BadInput, NotFound
from anchorwatch.topology.streams import BucketSpec, Source

from tests.conformance.worlds import World


async def make(world: World, bus: Bus, **options: object) -> KeyValue:
    spec = BucketSpec(name=world.stream("B"), **options)  # type: ignore[arg-type]  # its own fields
    await bus.ensure_bucket(spec)
    return await bus.bucket(spec.name)


async def test_put_value_is_read_back(world: World, bus: Bus) -> None:
    bucket = await make(world, bus)
    assert await bucket.get("k.a") is None
    first = await bucket.put("k.a", b"1")
    second = await bucket.put("k.a", b"2")
    entry = await bucket.get("k.a")
    assert entry is not None
    assert (entry.key, entry.value, entry.revision, entry.deleted) == ("k.a", b"2", second, False)
    assert second > first > 0


async def test_key_is_created_once(world: World, bus: Bus) -> None:
    bucket = await make(world, bus)
    await bucket.create("k", b"1")
    with pytest.raises(KeyExists):
        await bucket.create("k", b"2")
    entry = await bucket.get("k")
    assert entry is not None
    assert entry.value == b"1"


async def test_update_needs_the_current_revision(world: World, bus: Bus) -> None:
    bucket = await make(world, bus)
    first = await bucket.create("k", b"1")
    await bucket.put("other", b"x")
    second = await bucket.update("k", b"2", first)
    with pytest.raises(KeyExists):
        await bucket.update("k", b"3", first)
    with pytest.raises(KeyExists):
        await bucket.update("never", b"3", second)
    entry = await bucket.get("k")
    assert entry is not None
    assert (entry.value, entry.revision) == (b"2", second)


async def test_deleted_key_can_be_created_again(world: World, bus: Bus) -> None:
    bucket = await make(world, bus)
    await bucket.create("k", b"1")
    await bucket.delete("k")
    assert await bucket.get("k") is None
    assert await bucket.keys() == []
    await bucket.create("k", b"2")
    with pytest.raises(KeyExists):
        await bucket.create("k", b"3")
    assert await bucket.keys() == ["k"]


async def test_delete_can_need_a_revision(world: World, bus: Bus) -> None:
    bucket = await make(world, bus)
    first = await bucket.create("k", b"1")
    second = await bucket.update("k", b"2", first)
    with pytest.raises(KeyExists):
        await bucket.delete("k", first)
    await bucket.delete("k", second)
    assert await bucket.get("k") is None


async def test_keys_are_listed_in_order(world: World, bus: Bus) -> None:
    bucket = await make(world, bus, history=3)
    assert await bucket.keys() == []
    for key in ("b", "a.y", "a.x", "b"):
        await bucket.put(key, b"v")
    assert await bucket.keys() == ["a.x", "a.y", "b"]


async def test_many_keys_are_listed(world: World, bus: Bus) -> None:
    bucket = await make(world, bus)
    keys = [f"k.{n:04}" for n in range(1100)]
    await asyncio.gather(*(bucket.put(key, b"v" * 100) for key in keys))
    assert await bucket.keys() == keys


async def test_bucket_revision_changes_with_every_write(world: World, bus: Bus) -> None:
    bucket = await make(world, bus)
    seen = [await bucket.revision()]
    for write in (bucket.put("a", b"1"), bucket.put("b", b"1"), bucket.delete("a")):
        await write
        seen.append(await bucket.revision())
    assert seen == sorted(set(seen))
    assert await bucket.revision() == seen[-1]


async def test_key_with_a_time_to_live_expires(world: World, bus: Bus) -> None:
    bucket = await make(world, bus, key_ttl=True)
    revision = await bucket.create("k", b"1", ttl_s=3)
    with pytest.raises(KeyExists):
        await bucket.create("k", b"2", ttl_s=3)

    async def gone() -> bool:
        return await bucket.get("k") is None

    await world.until(gone)
    with pytest.raises(KeyExists):
        await bucket.update("k", b"2", revision, ttl_s=1)
    assert await bucket.keys() == []
    await bucket.create("k", b"3", ttl_s=1)


async def test_update_with_a_time_to_live_renews_it(world: World, bus: Bus) -> None:
    bucket = await make(world, bus, key_ttl=True)
    revision = await bucket.create("k", b"1", ttl_s=3)
    for _ in range(4):
        await world.advance(1.0)
        revision = await bucket.update("k", b"1", revision, ttl_s=3)
    await world.advance(0.5)
    assert await bucket.get("k") is not None


@pytest.mark.parametrize("key", ["", ".a", "a.", "a..b", "a b", "a*", ">", "ü"])
async def test_bad_key_is_refused(world: World, bus: Bus, key: str) -> None:
    bucket = await make(world, bus)
    with pytest.raises(BadInput):
        await bucket.put(key, b"x")
    with pytest.raises(BadInput):
        await bucket.get(key)


async def test_missing_bucket_is_reported(world: World, bus: Bus) -> None:
    with pytest.raises(NotFound):
        await (await bus.bucket(world.stream("NOPE"))).get("k")


async def make_view(world: World, bus: Bus) -> tuple[str, KeyValue]:
    journal = await world.make_stream(bus, "J")
    bucket = world.stream("VIEW")
    source = Source(
        journal, world.subject("j.*.*.p.anchor"), f"$KV.{bucket}.{{{{wildcard(1)}}}}.{{{{wildcard(2)}}}}"
    )
    await bus.ensure_bucket(BucketSpec(bucket, sources=(source,)))
    return journal, await bus.bucket(bucket)


async def test_view_follows_its_stream_and_keeps_the_last(world: World, bus: Bus) -> None:
    _, view = await make_view(world, bus)
    for n in range(3):
        for session in ("a", "b"):
            await bus.publish(Message(world.subject(f"j.w.{session}.p.anchor"), f"{session}{n}".encode()))
            await bus.publish(Message(world.subject(f"j.w.{session}.p.log"), b"not an anchor"))

    async def followed() -> bool:
        entries = [await view.get(f"w.{session}") for session in ("a", "b")]
        return [entry and entry.value for entry in entries] == [b"a2", b"b2"]

    await world.until(followed)
    assert await view.keys() == ["w.a", "w.b"]


async def test_view_copies_messages_older_than_itself(world: World, bus: Bus) -> None:
    journal = await world.make_stream(bus, "J")
    await bus.publish(Message(world.subject("j.w.a.p.anchor"), b"early"))
    _, view = await make_view(world, bus)
    assert journal

    async def followed() -> bool:
        entry = await view.get("w.a")
        return entry is not None and entry.value == b"early"

    await world.until(followed)


async def test_clients_cannot_write_a_view(world: World, bus: Bus) -> None:
    _, view = await make_view(world, bus)
    with pytest.raises(StreamMissing):
        await view.put("w.a", b"forged")


async def test_view_keeps_purged_messages_of_its_stream(world: World, bus: Bus) -> None:
    journal, view = await make_view(world, bus)
    await bus.publish(Message(world.subject("j.w.a.p.anchor"), b"x"))

    async def there() -> bool:
        return await view.get("w.a") is not None

    await world.until(there)
    await bus.purge(journal, world.subject("j.w.a.>"))
    await world.advance(0.3)
    assert await there()
    assert await bus.purge(f"KV_{world.stream('VIEW')}", f"$KV.{world.stream('VIEW')}.w.a") == 1
    assert not await there()
