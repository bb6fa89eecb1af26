"""Properties under any order and any fault: a fence has one winner, a batch is stored whole or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence

from anchorwatch.bus.port import BatchRefused, Expect, Message, WrongLastSequence
from anchorwatch.core.errors import Unavailable
from anchorwatch.testing.bus import FaultKind, Faults, SimServer, run
from anchorwatch.testing.bus.stream import SubjectIndex, overlap
from anchorwatch.topology.streams import StreamSpec
from anchorwatch.topology.subjects import matches
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.contention import BY_CHANCE

FAMILIES = ("j.a.>", "j.b.>", "j.a.x", "j.*.x")
SUBJECTS = ("j.a.x", "j.a.y", "j.a.y.z", "j.b.x", "j.b.w.v", "j.c")

seeds = st.integers(0, 2**32)
rates = st.sampled_from((0.0, 0.1, 0.3))
fences = st.tuples(st.sampled_from(SUBJECTS), st.sampled_from((None, *FAMILIES)), st.integers(0, 6))


def faulty(seed: int, rate: float) -> Faults:
    return Faults(random.Random(seed), dict.fromkeys(BY_CHANCE, rate))


def as_message(subject: str, family: str | None, expected: int, message_id: str | None = None) -> Message:
    expect = None if family is None else Expect(family, expected)
    return Message(subject, b"x", message_id, expect)


def held(stored: Sequence[tuple[str, Expect | None]]) -> bool:
    """Whether each message's fence held when it was stored, computed without the server's index."""
    for count, (_, expect) in enumerate(stored):
        if expect is not None:
            before = [n + 1 for n in range(count) if matches(expect.subject, stored[n][0])]
            if (before[-1] if before else 0) != expect.sequence:
                return False
    return True


@settings(deadline=None, max_examples=150)
@given(seed=seeds, rate=rates, attempts=st.lists(st.lists(fences, max_size=8), min_size=2, max_size=4))
def test_fence_never_has_two_winners(
    seed: int, rate: float, attempts: list[list[tuple[str, str | None, int]]]
) -> None:
    wins: dict[tuple[str, int], int] = {}

    async def write(server: SimServer, mine: list[tuple[str, str | None, int]]) -> None:
        bus = server.connect()
        for subject, family, expected in mine:
            try:
                await bus.publish(as_message(subject, family, expected), timeout_s=2)
            except (WrongLastSequence, Unavailable):
                continue
            if family is not None and matches(family, subject):
                wins[family, expected] = wins.get((family, expected), 0) + 1

    async def main() -> list[tuple[str, Expect | None]]:
        server = SimServer(faults=faulty(seed, rate), seed=seed, latency_s=(0, 0.01))
        server.ensure_stream(StreamSpec("J", ("j.>",)))
        await asyncio.gather(*(write(server, mine) for mine in attempts))
        await asyncio.sleep(10)  # zombie writes too
        return [(each.subject, fence_of(each.headers)) for each in server.stream("J").messages.values()]

    stored = run(main(), seed)
    assert held(stored)
    assert max(wins.values(), default=1) == 1


def fence_of(headers: object) -> Expect | None:
    assert isinstance(headers, dict)
    if "Nats-Expected-Last-Subject-Sequence" not in headers:
        return None
    return Expect(
        headers["Nats-Expected-Last-Subject-Sequence-Subject"],
        int(headers["Nats-Expected-Last-Subject-Sequence"]),
    )


ids = st.sampled_from((None, None, "1", "2", "3"))
batches = st.lists(st.lists(st.tuples(fences, ids), min_size=1, max_size=5), min_size=1, max_size=8)


@settings(deadline=None, max_examples=150)
@given(seed=seeds, rate=rates, given_batches=batches)
def test_batch_is_stored_whole_and_in_order_or_not_at_all(
    seed: int, rate: float, given_batches: list[list[tuple[tuple[str, str | None, int], str | None]]]
) -> None:
    acked: dict[int, int] = {}

    async def write(server: SimServer, number: int, batch: Sequence[Message]) -> None:
        with contextlib.suppress(WrongLastSequence, BatchRefused, Unavailable):
            acked[number] = (await server.connect().publish_batch(batch, timeout_s=2)).sequence

    async def main() -> list[list[str]]:
        server = SimServer(faults=faulty(seed, rate), seed=seed, latency_s=(0, 0.01))
        server.ensure_stream(StreamSpec("J", ("j.>",), atomic_batches=True))
        made = [
            [
                Message(message.subject, f"{number}/{place}".encode(), message.message_id, message.expect)
                for place, (fence, message_id) in enumerate(batch)
                for message in [as_message(*fence, message_id)]
            ]
            for number, batch in enumerate(given_batches)
        ]
        await asyncio.gather(*(write(server, number, batch) for number, batch in enumerate(made)))
        await asyncio.sleep(10)
        return [each.payload.decode().split("/") for each in server.stream("J").messages.values()]

    stored = run(main(), seed)
    runs: list[list[str]] = []
    for number, place in stored:
        if place == "0":
            runs.append([])
        runs[-1].append(number)
    for batch_run in runs:
        assert set(batch_run) == {batch_run[0]}, "two batches are mixed"
        assert len(batch_run) == len(given_batches[int(batch_run[0])]), "a batch is stored in part"
    assert len({each[0] for each in runs}) == len(runs), "a batch is stored twice"
    for batch_number, last in acked.items():
        assert stored[last - 1] == [str(batch_number), str(len(given_batches[batch_number]) - 1)]


tokens = st.sampled_from(("a", "b", "c"))
subjects = st.lists(tokens, min_size=1, max_size=4).map(".".join)
patterns = st.tuples(
    st.lists(st.sampled_from(("a", "b", "*")), max_size=3), st.sampled_from(("a", "*", ">"))
).map(lambda parts: ".".join((*parts[0], parts[1])))


@settings(deadline=None)
@given(given_subjects=st.lists(subjects, max_size=20), pattern=patterns, removed=st.sets(st.integers(1, 20)))
def test_index_finds_exactly_the_matches(given_subjects: list[str], pattern: str, removed: set[int]) -> None:
    index = SubjectIndex()
    stored: dict[int, str] = {}
    for sequence, subject in enumerate(given_subjects, 1):
        index.add(subject, sequence)
        stored[sequence] = subject
    for sequence in sorted(removed & set(stored)):
        index.discard(stored.pop(sequence), sequence)
    expected: dict[str, list[int]] = {}
    for sequence, subject in stored.items():
        if matches(pattern, subject):
            expected.setdefault(subject, []).append(sequence)
    assert sorted(index.match(pattern)) == sorted(expected.values())
    assert index.last(pattern) == max((each[-1] for each in expected.values()), default=0)


@given(one=patterns, other=patterns, subject=subjects)
def test_patterns_with_a_common_subject_overlap(one: str, other: str, subject: str) -> None:
    if matches(one, subject) and matches(other, subject):
        assert overlap(one, other)
    assert overlap(one, other) == overlap(other, one)


def test_random_fault_kinds_exclude_those_of_tests() -> None:
    assert FaultKind.SLOW_SCHEDULE in BY_CHANCE
    assert FaultKind.CUT not in BY_CHANCE
