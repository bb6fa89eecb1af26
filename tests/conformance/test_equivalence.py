"""The two buses are equivalent: a random script, run on both, has the same outcome at each step (INV-915)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from anchorwatch.bus.port import (
    Bus,
    Consumer,
    ConsumerSpec,
    ConsumerState,
    Delivery,
    Expect,
    KeyValue,
    Message,
    Page,
    Schedule,
)
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.testing.bus import SimServer
from anchorwatch.topology.streams import BucketSpec, Source, StreamSpec

from tests.conformance.worlds import World

STEPS = 120
SUBJECTS = ("a", "b", "p.x", "p.y", "p.y.z", "q.x.y")
FILTERS = ("a", "b", "p.>", "p.*", "*.x", "q.>", ">", "none.here")
FAR_MS = 3_600_000
LOOK_S = 0.02
ARRIVES_S = 30.0
SETTLE_S = 0.2  # the arrival of a nak cannot be observed

Step = Callable[[Bus], Awaitable[object]]


class Script:
    """Steps by seed. Each random choice is made here, so that both buses get the same."""

    def __init__(self, seed: int, prefix: str) -> None:
        self._random = random.Random(seed)
        self._prefix = prefix
        self._drawn = 0
        self._purges = seed % 2 == 1
        self.stream = f"{prefix}_TWIN"
        self.bucket = f"{prefix}_twin"
        self.view = f"{prefix}_view"
        self._consumers: dict[tuple[int, str], Consumer] = {}

    def subject(self, rest: str) -> str:
        return f"{self._prefix}.twin.{rest}"

    async def open(self, bus: Bus) -> None:
        """The stream, a bucket, and a view of one subject's family."""
        await bus.ensure_stream(
            StreamSpec(self.stream, (self.subject(">"),), atomic_batches=True, message_bytes_max=2000)
        )
        await bus.ensure_stream(
            StreamSpec(f"{self.stream}_S", (f"{self._prefix}.ticks.>",), schedules=True, message_ttl=True)
        )
        await bus.ensure_bucket(BucketSpec(self.bucket, history=2))
        source = Source(self.stream, self.subject("p.*"), f"$KV.{self.view}.{{{{wildcard(1)}}}}")
        await bus.ensure_bucket(BucketSpec(self.view, sources=(source,)))

    def next(self) -> tuple[str, Step]:
        """A step and its name."""
        often = [self.publish] * 5 + [self.fetch] * 2
        seldom = [self.batch, self.last, self.range, self.key, self.schedule, self.look]
        made = self._random.choice([*often, *seldom, self.purge] if self._purges else [*often, *seldom])
        return made.__name__, made()

    def _message(self) -> Message:
        pick = self._random
        expect = None
        if pick.random() < 0.6:
            # Near the stream's last sequence, so that about half of the fences hold.
            guess = pick.choice((0, 0, max(0, self._drawn - pick.randint(0, 4))))
            expect = Expect(self.subject(pick.choice(FILTERS)), guess)
        self._drawn += pick.random() < 0.4
        return Message(
            self.subject(pick.choice(SUBJECTS)),
            bytes(pick.choice((0, 10, 300, 1700, 1900))),
            message_id=pick.choice((None, *"12345678")),
            expect=expect,
            headers=pick.choice(({}, {"Aw-Kind": "x"})),
        )

    def publish(self) -> Step:
        message = self._message()
        return lambda bus: bus.publish(message)

    def batch(self) -> Step:
        messages = [self._message() for _ in range(self._random.randint(1, 4))]
        return lambda bus: bus.publish_batch(messages)

    def last(self) -> Step:
        filters = [self.subject(each) for each in self._random.sample(FILTERS, self._random.randint(1, 3))]
        return lambda bus: bus.last(self.stream, filters)

    def range(self) -> Step:
        filter_ = self.subject(self._random.choice(FILTERS))
        start, limit = self._random.randint(0, self._drawn + 2), self._random.choice((1, 3, 50))
        reach = self._random.choice((None, None, start))

        async def read(bus: Bus) -> Page:
            page = await bus.range(self.stream, filter_, start, limit, reach=reach)
            # After the requested reach, a bus need not read.
            return page if reach is None or page.up_to < reach else replace(page, more=False)

        return read

    def key(self) -> Step:
        pick = self._random
        key, revision = pick.choice(("k", "k.l", "k..l", "m")), pick.randint(0, 12)
        calls: dict[str, Callable[[KeyValue], Awaitable[object]]] = {
            "get": lambda bucket: bucket.get(key),
            "put": lambda bucket: bucket.put(key, b"put"),
            "create": lambda bucket: bucket.create(key, b"made"),
            "update": lambda bucket: bucket.update(key, b"new", revision),
            "delete": lambda bucket: bucket.delete(key),
            "delete at": lambda bucket: bucket.delete(key, revision),
            "keys": lambda bucket: bucket.keys(),
            "revision": lambda bucket: bucket.revision(),
        }
        what = pick.choice(list(calls))

        async def step(bus: Bus) -> object:
            return what, await calls[what](await bus.bucket(self.bucket))

        return step

    def purge(self) -> Step:
        filter_, keep_from = self._random.choice(FILTERS[:5]), self._random.randint(1, self._drawn + 1)
        return lambda bus: bus.purge(self.stream, self.subject(filter_), keep_from)

    def fetch(self) -> Step:
        pick = self._random
        name, limit, start = pick.choice(("c1", "c2", "c3")), pick.randint(1, 5), pick.randint(0, 12)
        # After a purge the real server redelivers naked messages only after their ack wait, and counts purged ones as pending.
        answers = [
            pick.choice(("ack", "ack", "keep" if self._purges else "nak", "keep")) for _ in range(limit)
        ]

        # On the simulated bus, which runs first and has no delays.
        came, there = 0, None

        async def step(bus: Bus) -> object:
            nonlocal came, there
            if (id(bus), name) not in self._consumers:
                filters = (self.subject("p.>"), self.subject("a")) if name == "c2" else (self.subject(">"),)
                spec = ConsumerSpec(
                    self.stream,
                    filters,
                    name,
                    ack_wait_s=300.0,
                    ack_pending_max=100,
                    start_sequence=start if name == "c3" else None,
                )
                self._consumers[id(bus), name] = await bus.consumer(spec)
            consumer = self._consumers[id(bus), name]
            seen = []
            deliveries = await take(consumer, limit, came)
            for delivery, answer in zip(deliveries, answers, strict=False):
                seen.append((delivery.stored.sequence, delivery.attempt, answer))
                if answer != "keep":
                    await (delivery.ack() if answer == "ack" else delivery.nak())
            if "nak" in answers[: len(deliveries)]:
                await asyncio.sleep(SETTLE_S)
            came, there = len(deliveries), await self._standing(consumer, there)
            return name, limit, seen, there

        return step

    async def _standing(self, consumer: Consumer, wanted: ConsumerState | int | None) -> ConsumerState | int:
        """The consumer's position, as both buses report it: ``wanted`` within a limit, or the one at that limit."""
        deadline = time.monotonic() + ARRIVES_S
        while True:
            state = await consumer.state()
            said = state.pending if self._purges else state
            if wanted is None or said == wanted or time.monotonic() > deadline:
                return said

    def schedule(self) -> Step:
        pick = self._random
        name, guess = pick.choice(("a", "b")), pick.choice((None, 0, 1, 2, 3, 4))
        subject = f"{self._prefix}.ticks.schedule.{name}"
        target = pick.choice(
            (f"{self._prefix}.ticks.fired", f"{self._prefix}.ticks.fired", subject, "elsewhere")
        )
        ttl_s, plain = pick.choice((None, 60)), pick.random() < 0.2
        expect = None if guess is None else Expect(subject, guess)

        async def step(bus: Bus) -> object:
            at_ms = await bus.server_time_ms() + FAR_MS
            schedule = None if plain else Schedule(at_ms, target)
            ack = await bus.publish(Message(subject, b"x", expect=expect, schedule=schedule, ttl_s=ttl_s))
            return ack, await bus.stream_state(f"{self.stream}_S")

        return step

    def look(self) -> Step:
        return lambda bus: bus.stream_state(self.stream)


async def take(consumer: Consumer, limit: int, wanted: int) -> list[Delivery]:
    """The available messages; a busy machine may deliver the ``wanted`` number one by one."""
    taken: list[Delivery] = []
    while len(taken) < limit:
        batch = await consumer.fetch(limit - len(taken), ARRIVES_S if len(taken) < wanted else LOOK_S)
        taken += batch
        if not batch:
            break
    return taken


async def outcome(step: Step, bus: Bus) -> object:
    """The result of a step in a form that must be equal on both buses."""
    try:
        result = await step(bus)
    except AnchorWatchError as error:
        return type(error), getattr(error, "spurious_possible", None)
    if isinstance(result, Page):
        messages = [(each.sequence, each.subject, each.payload, each.message_id) for each in result.messages]
        return messages, result.up_to, result.more
    return result


@pytest.mark.asyncio(loop_factories=["nats"])  # both run at once
@pytest.mark.parametrize("seed", range(6))
async def test_one_script_has_one_outcome_on_both_buses(seed: int, world: World) -> None:
    script = Script(seed, world.stream("x"))
    real, twin = await world.connect(), SimServer().connect()
    for bus in (real, twin):
        await script.open(bus)
    played: list[str] = []
    for number in range(STEPS):
        name, step = script.next()
        got, expected = await outcome(step, twin), await outcome(step, real)
        played.append(f"{number} {name}: {expected}")
        assert got == expected, "\n".join(played[-8:])
    await twin.close()
