"""Streams: made once, compared afterwards, never changed silently."""

from __future__ import annotations

from dataclasses import replace

import pytest
from anchorwatch.bus.port import Bus, Expect, Message, StreamFull, StreamMissing, WrongLastSequence
from anchorwatch.core.errors import ConfigDiffers, TooLarge
from anchorwatch.topology.streams import (
    BUCKETS,
    OBJECT_STORES,
    STREAMS,
    BucketSpec,
    Source,
    StreamLimits,
    StreamSpec,
)

from tests.conformance.worlds import World


def spec(world: World, **options: object) -> StreamSpec:
    made = StreamSpec(name=world.stream(), subjects=(world.subject("s.>"),), dedupe_window_s=60.0)
    return replace(made, **options)  # type: ignore[arg-type]  # its own fields


async def test_stream_with_the_wanted_configuration_is_unchanged(world: World, bus: Bus) -> None:
    wanted = spec(world, atomic_batches=True, age_max_s=3600.0, message_bytes_max=5000, per_subject_max=3)
    await bus.ensure_stream(wanted)
    await bus.publish(Message(world.subject("s.a"), b"x"))
    await bus.ensure_stream(wanted)
    assert (await bus.stream_state(wanted.name)).messages == 1


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"dedupe_window_s": 120.0}, "dedupe_window 120 s wanted, 60 s found"),
        ({"atomic_batches": True}, "atomic_batches on wanted, off found"),
        ({"message_ttl": True}, "message_ttl on wanted, off found"),
        ({"age_max_s": 3600.0}, "age_max 3600 s wanted, 0 s found"),
        ({"message_bytes_max": 100}, "message_bytes_max 100 wanted, -1 found"),
        ({"per_subject_max": 1}, "per_subject_max 1 wanted, -1 found"),
        ({"work_queue": True}, "retention workqueue wanted, limits found"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_error_names_the_difference_of_a_stream(
    world: World, bus: Bus, change: dict[str, object], difference: str
) -> None:
    await bus.ensure_stream(spec(world))
    with pytest.raises(ConfigDiffers, match=difference):
        await bus.ensure_stream(spec(world, **change))
    # The stream is unchanged.
    await bus.ensure_stream(spec(world))


async def test_error_names_every_difference(world: World, bus: Bus) -> None:
    await bus.ensure_stream(spec(world))
    wanted = spec(
        world, subjects=(world.subject("s.>"), world.subject("r.>")), schedules=True, message_ttl=True
    )
    with pytest.raises(ConfigDiffers) as caught:
        await bus.ensure_stream(wanted)
    for part in (world.stream(), "subjects ", "schedules on wanted, off found", "message_ttl on wanted"):
        assert part in caught.value.message


async def test_order_of_subjects_does_not_matter(world: World, bus: Bus) -> None:
    subjects = (world.subject("s.a"), world.subject("s.b"))
    await bus.ensure_stream(spec(world, subjects=subjects))
    await bus.ensure_stream(spec(world, subjects=subjects[::-1]))


async def test_error_names_the_difference_of_a_bucket(world: World, bus: Bus) -> None:
    await bus.ensure_bucket(BucketSpec(world.stream("B"), history=2))
    await bus.ensure_bucket(BucketSpec(world.stream("B"), history=2))
    with pytest.raises(ConfigDiffers, match="per_subject_max 1 wanted, 2 found"):
        await bus.ensure_bucket(BucketSpec(world.stream("B")))
    journal = await world.make_stream(bus, "J")
    source = Source(journal, world.subject("j.*"), f"$KV.{world.stream('B')}.{{{{wildcard(1)}}}}")
    with pytest.raises(ConfigDiffers, match=r"sources .* wanted, none found"):
        await bus.ensure_bucket(BucketSpec(world.stream("B"), history=2, sources=(source,)))


async def test_whole_topology_can_be_made_and_compared(bus: Bus) -> None:
    for _ in range(2):
        for stream in STREAMS:
            await bus.ensure_stream(stream)
        for bucket in BUCKETS:
            await bus.ensure_bucket(bucket)
        for store in OBJECT_STORES:
            await bus.ensure_object_store(store)


async def test_stream_keeps_the_metadata_that_it_was_made_with(world: World, bus: Bus) -> None:
    await bus.ensure_stream(spec(world, metadata={"format": "1"}))
    await bus.ensure_stream(spec(world, metadata={"format": "2"}))
    assert await bus.stream_metadata(world.stream()) == {"format": "1"}
    await bus.ensure_stream(StreamSpec(world.stream("T"), (world.subject("t.a"),)))
    assert await bus.stream_metadata(world.stream("T")) == {}
    with pytest.raises(StreamMissing):
        await bus.stream_metadata(world.stream("U"))


async def test_limit_per_subject_keeps_the_newest(world: World, bus: Bus) -> None:
    await bus.ensure_stream(spec(world, per_subject_max=2))
    for payload in (b"1", b"2", b"3"):
        await bus.publish(Message(world.subject("s.a"), payload))
    page = await bus.range(world.stream(), world.subject("s.a"), 1)
    assert [each.payload for each in page.messages] == [b"2", b"3"]


async def test_stream_state_reports_its_contents(world: World, bus: Bus) -> None:
    await bus.ensure_stream(spec(world))
    assert (await bus.stream_state(world.stream())).messages == 0
    for _ in range(3):
        await bus.publish(Message(world.subject("s.a"), b"x" * 1000))
    state = await bus.stream_state(world.stream())
    assert (state.first_sequence, state.last_sequence, state.messages) == (1, 3, 3)
    assert 3000 < state.bytes < 4000


async def test_purge_removes_matches_and_resets_the_fence(world: World, bus: Bus) -> None:
    await bus.ensure_stream(spec(world))
    a, b = world.subject("s.a"), world.subject("s.b")
    for subject in (a, b, a, b):
        await bus.publish(Message(subject, b"x"))
    with pytest.raises(WrongLastSequence):
        await bus.publish(Message(a, b"x", expect=Expect(a, 0)))
    assert await bus.purge(world.stream(), a) == 2
    page = await bus.last(world.stream(), [world.subject("s.>")])
    assert ([each.subject for each in page.messages], page.up_to) == ([b], 4)
    assert (await bus.publish(Message(a, b"x", expect=Expect(a, 0)))).sequence == 5


async def test_purge_can_keep_newer_messages(world: World, bus: Bus) -> None:
    await bus.ensure_stream(spec(world))
    for _ in range(5):
        await bus.publish(Message(world.subject("s.a"), b"x"))
    assert await bus.purge(world.stream(), world.subject("s.a"), keep_from=4) == 3
    page = await bus.range(world.stream(), world.subject("s.a"), 1)
    assert [each.sequence for each in page.messages] == [4, 5]


async def test_sequences_continue_after_a_full_purge(world: World, bus: Bus) -> None:
    await bus.ensure_stream(spec(world))
    for _ in range(3):
        await bus.publish(Message(world.subject("s.a"), b"x"))
    assert await bus.purge(world.stream(), world.subject("s.>")) == 3
    state = await bus.stream_state(world.stream())
    assert (state.messages, state.last_sequence) == (0, 3)
    assert (await bus.publish(Message(world.subject("s.a"), b"x"))).sequence == 4


async def test_stream_lists_its_missing_sequences(world: World, bus: Bus) -> None:
    await bus.ensure_stream(spec(world))
    assert list(await bus.holes(world.stream())) == []
    for name in "abaacaba":
        await bus.publish(Message(world.subject(f"s.{name}"), b"x"))
    assert list(await bus.holes(world.stream())) == []
    await bus.purge(world.stream(), world.subject("s.c"))
    assert list(await bus.holes(world.stream())) == [(5, 5)]
    await bus.purge(world.stream(), world.subject("s.a"))
    assert list(await bus.holes(world.stream())) == [(1, 1), (3, 6), (8, 8)]
    await bus.purge(world.stream(), world.subject("s.>"))
    assert list(await bus.holes(world.stream())) == [(1, 8)]
    with pytest.raises(StreamMissing):
        await bus.holes(world.stream("NOPE"))


async def test_messages_are_counted_for_each_subject(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    for name in ("a.x", "a.x", "a.y", "b.x"):
        await bus.publish(Message(world.subject(f"s.{name}"), b""))
    counted = await bus.counts(stream, world.subject("s.a.*"))
    assert counted == {world.subject("s.a.x"): 2, world.subject("s.a.y"): 1}
    assert await bus.counts(stream, world.subject("s.c.*")) == {}
    with pytest.raises(StreamMissing):
        await bus.counts(world.stream("NOPE"), ">")


async def test_full_stream_refuses_new_messages_and_loses_none(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus, bytes_max=10_000, adjustable=True)
    subject, limits = world.subject("s.a"), StreamLimits(bytes_max=10_000)
    for _ in range(9):
        await bus.publish(Message(subject, b"x" * 1_000))
    for smaller in (limits, StreamLimits(bytes_max=5_000)):
        await bus.set_limits(stream, smaller)
        assert await bus.limits(stream) == smaller
        with pytest.raises(StreamFull):
            await bus.publish(Message(subject, b"x" * 1_000))
        assert (await bus.stream_state(stream)).messages == 9
    assert await bus.purge(stream, world.subject("s.>"), 7) == 6
    assert (await bus.publish(Message(subject, b"x" * 1_000))).sequence == 10
    await bus.set_limits(stream, StreamLimits(bytes_max=20_000, age_max_s=3_600, message_bytes_max=500))
    with pytest.raises(TooLarge):
        await bus.publish(Message(subject, b"x" * 1_000))
    assert (await bus.publish(Message(subject, b"x"))).sequence == 11


async def test_only_limits_of_an_adjustable_stream_may_differ(world: World, bus: Bus) -> None:
    made = StreamSpec(
        world.stream(), (world.subject("s.>"),), bytes_max=10_000, age_max_s=3_600, adjustable=True
    )
    await bus.ensure_stream(made)
    other = made.with_limits(StreamLimits(bytes_max=20_000, message_bytes_max=100))
    await bus.ensure_stream(other)
    assert await bus.limits(made.name) == made.limits
    with pytest.raises(ConfigDiffers, match="bytes_max 20000 wanted, 10000 found"):
        await bus.ensure_stream(replace(other, adjustable=False))
