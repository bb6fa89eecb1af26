"""Reads, and the sequence up to which each is complete."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from anchorwatch.bus.port import Bus, Message, Page, Stored, StreamMissing
from anchorwatch.core.errors import BadInput, TooLarge

from tests.conformance.worlds import World


async def fill(world: World, bus: Bus, names: str) -> str:
    """One message for each letter, on ``s.<letter>``; its payload is its sequence."""
    stream = await world.make_stream(bus)
    for sequence, name in enumerate(names, 1):
        await bus.publish(Message(world.subject(f"s.{name}"), str(sequence).encode()))
    return stream


async def test_last_returns_last_messages_in_sequence_order(world: World, bus: Bus) -> None:
    stream = await fill(world, bus, "cabac")
    page = await bus.last(stream, [world.subject("s.*")])
    assert [(each.subject, each.sequence) for each in page.messages] == [
        (world.subject("s.b"), 3),
        (world.subject("s.a"), 4),
        (world.subject("s.c"), 5),
    ]
    assert (page.up_to, page.more) == (5, False)


async def test_publisher_headers_cannot_imitate_the_server(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    for status in ("404", "204", "503"):
        await bus.publish(Message(world.subject(f"s.{status}"), b"", headers={"Status": status}))
    await bus.publish(Message(world.subject("s.z"), b"x"))
    for page in (
        await bus.range(stream, world.subject("s.*"), 1),
        await bus.last(stream, [world.subject("s.*")]),
    ):
        assert [(each.sequence, each.headers.get("Status")) for each in page.messages] == [
            (1, "404"),
            (2, "204"),
            (3, "503"),
            (4, None),
        ]
        assert (page.up_to, page.more) == (4, False)
    for sequence, status in enumerate(("404", "204", "503"), 1):
        subject = world.subject(f"s.{status}")
        alone = await bus.range(stream, subject, 1, limit=1, reach=sequence)
        assert [each.sequence for each in alone.messages] == [sequence]


async def test_last_with_several_filters_repeats_no_message(world: World, bus: Bus) -> None:
    stream = await fill(world, bus, "abcd")
    page = await bus.last(stream, [world.subject("s.a"), world.subject("s.d"), world.subject("s.none")])
    assert [each.sequence for each in page.messages] == [1, 4]
    overlapping = await bus.last(stream, [world.subject("s.*"), world.subject("s.a")])
    assert [each.sequence for each in overlapping.messages] == [1, 2, 3, 4]


async def test_last_of_nothing_has_a_completeness_sequence(world: World, bus: Bus) -> None:
    stream = await fill(world, bus, "abc")
    nothing = [world.subject("s.none")]
    page = await bus.last(stream, nothing)
    assert (page.messages, page.up_to, page.more) == ((), 3, False)
    await bus.publish(Message(world.subject("s.a"), b""))
    assert (await bus.last(stream, nothing)).up_to == 4
    # Even after the first witness was purged.
    for name in "abc":
        await bus.purge(stream, world.subject(f"s.{name}"))
    await bus.publish(Message(world.subject("s.d"), b""))
    assert (await bus.last(stream, nothing)).up_to == 5


async def test_concurrent_reads_survive_a_purged_witness(world: World, bus: Bus) -> None:
    stream = await fill(world, bus, "a")
    nothing = [world.subject("s.none")]
    for gone, comes in itertools.pairwise("abcdefgh"):
        await bus.last(stream, nothing)
        await bus.purge(stream, world.subject(f"s.{gone}"))
        await bus.publish(Message(world.subject(f"s.{comes}"), b""))
        pages = await asyncio.gather(*(bus.last(stream, nothing) for _ in range(8)))
        assert {(page.messages, page.up_to) for page in pages} == {((), ord(comes) - ord("a") + 1)}


async def test_empty_stream_reads_as_empty(world: World, bus: Bus) -> None:
    stream = await fill(world, bus, "")
    page = await bus.last(stream, [world.subject("s.>")])
    assert (page.messages, page.up_to) == ((), 0)
    page = await bus.range(stream, world.subject("s.>"), 1)
    assert (page.messages, page.up_to, page.more) == ((), 0, False)


async def test_last_of_too_many_subjects_is_refused(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    subjects = [world.subject(f"s.{n}") for n in range(1025)]
    await asyncio.gather(*(bus.publish(Message(subject, b"", message_id=subject)) for subject in subjects))
    with pytest.raises(TooLarge):
        await bus.last(stream, [world.subject("s.*")])
    assert len((await bus.last(stream, subjects[:1024])).messages) == 1024
    # A range has no such limit, but is then complete only up to its own messages.
    page = await bus.range(stream, world.subject("s.*"), 1000, limit=100)
    assert ([each.sequence for each in page.messages], page.more) == ([*range(1000, 1026)], False)
    assert page.up_to == 1025
    await bus.publish(Message(world.subject("s.more.other"), b""))
    assert (await bus.range(stream, world.subject("s.*"), 1000)).up_to == 1025
    assert (await bus.range(stream, world.subject("s.*"), 1026)).up_to == 1025


async def test_range_returns_matches_in_order(world: World, bus: Bus) -> None:
    stream = await fill(world, bus, "abacaba")
    page = await bus.range(stream, world.subject("s.a"), 2)
    assert [(each.sequence, each.payload) for each in page.messages] == [(3, b"3"), (5, b"5"), (7, b"7")]
    assert (page.up_to, page.more) == (7, False)


async def test_range_is_complete_beyond_its_last_message(world: World, bus: Bus) -> None:
    stream = await fill(world, bus, "abbb")
    page = await bus.range(stream, world.subject("s.a"), 1)
    assert ([each.sequence for each in page.messages], page.up_to) == ([1], 4)
    page = await bus.range(stream, world.subject("s.a"), 2)
    assert (page.messages, page.up_to) == ((), 4)
    page = await bus.range(stream, world.subject("s.none"), 1)
    assert (page.messages, page.up_to) == ((), 4)


async def test_range_may_stop_at_the_requested_reach(world: World, bus: Bus) -> None:
    stream = await fill(world, bus, "abab")
    page = await bus.range(stream, world.subject("s.a"), 1, reach=3)
    assert [each.sequence for each in page.messages] == [1, 3]
    assert page.up_to >= 3
    assert (await bus.range(stream, world.subject("s.a"), 1, reach=4)).up_to == 4


async def test_range_of_one_message_returns_it(world: World, bus: Bus) -> None:
    stream = await fill(world, bus, "abab")
    page = await bus.range(stream, world.subject("s.a"), 1, limit=1, reach=1)
    assert ([each.sequence for each in page.messages], page.up_to) == ([1], 1)
    page = await bus.range(stream, world.subject("s.a"), 1, limit=1, reach=3)
    assert ([each.sequence for each in page.messages], page.up_to, page.more) == ([1], 1, True)
    page = await bus.range(stream, world.subject("s.a"), 4, limit=1, reach=4)
    assert (page.messages, page.up_to, page.more) == ((), 4, False)


async def test_range_is_read_in_pages(world: World, bus: Bus) -> None:
    stream = await fill(world, bus, "aababaa")
    seen, at, pages = [], 1, 0
    while True:
        page = await bus.range(stream, world.subject("s.a"), at, limit=2)
        seen += [each.sequence for each in page.messages]
        pages += 1
        if not page.more:
            break
        assert page.up_to == page.messages[-1].sequence
        at = page.messages[-1].sequence + 1
    assert (seen, pages, page.up_to) == ([1, 2, 4, 6, 7], 3, 7)


async def test_page_that_ends_at_the_limit_is_the_last(world: World, bus: Bus) -> None:
    stream = await fill(world, bus, "aab")
    page = await bus.range(stream, world.subject("s.a"), 1, limit=2)
    assert (len(page.messages), page.more, page.up_to) == (2, False, 3)


async def test_range_after_the_end_is_empty(world: World, bus: Bus) -> None:
    stream = await fill(world, bus, "aa")
    page = await bus.range(stream, world.subject("s.a"), 100)
    assert (page.messages, page.more) == ((), False)


async def test_range_from_zero_begins_at_the_first(world: World, bus: Bus) -> None:
    stream = await fill(world, bus, "aa")
    assert len((await bus.range(stream, world.subject("s.a"), 0)).messages) == 2


async def test_range_of_no_messages_is_bad_input(world: World, bus: Bus) -> None:
    stream = await fill(world, bus, "a")
    with pytest.raises(BadInput):
        await bus.range(stream, world.subject("s.a"), 1, limit=0)


async def test_large_messages_are_read_whole(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    payload = bytes(256 * 1024)
    for n in range(8):
        await bus.publish(Message(world.subject(f"s.{n}"), payload))
    read, page = list[Stored](), Page((), 0, more=True)
    while page.more:
        page = await bus.range(stream, world.subject("s.*"), page.up_to + 1)
        read += page.messages
    assert [len(each.payload) for each in read] == [len(payload)] * 8
    assert len((await bus.last(stream, [world.subject("s.*")])).messages) == 8


async def test_read_of_a_missing_stream_is_reported(world: World, bus: Bus) -> None:
    with pytest.raises(StreamMissing):
        await bus.last(world.stream("NOPE"), [">"])
    with pytest.raises(StreamMissing):
        await bus.range(world.stream("NOPE"), ">", 1)
    with pytest.raises(StreamMissing):
        await bus.stream_state(world.stream("NOPE"))


async def test_concurrent_reads_do_not_mix(world: World, bus: Bus) -> None:
    stream = await fill(world, bus, "abcdefgh")

    async def read(name: str) -> None:
        page = await bus.last(stream, [world.subject(f"s.{name}")])
        assert [each.subject for each in page.messages] == [world.subject(f"s.{name}")]

    await asyncio.gather(*(read(name) for name in "abcdefgh" * 10))


async def test_server_clock_can_be_read(world: World, bus: Bus) -> None:
    before_ms = world.now_ms()
    first_ms = await bus.server_time_ms()
    after_ms = world.now_ms()
    # The error is half of the answer's time, plus rounding.
    off_ms = (after_ms - before_ms) / 2 + 2
    assert before_ms - off_ms <= first_ms <= after_ms + off_ms
    await world.advance(0.2)
    second_ms = await bus.server_time_ms()
    assert first_ms + 198 <= second_ms <= world.now_ms() + off_ms


async def test_read_of_nothing_is_complete_after_a_purged_end(world: World, bus: Bus) -> None:
    stream = await world.make_stream(bus)
    for name in ("s.a", "s.a", "s.b"):
        await bus.publish(Message(world.subject(name), b"x"))
    await bus.purge(stream, world.subject("s.b"))
    nothing = world.subject("s.none")
    assert (await bus.last(stream, [nothing])).up_to == 3
    assert (await bus.range(stream, nothing, 1)).up_to == 3
