"""A small world in which everything that can go wrong does: writers that fence each other off, readers that share a consumer.

It is no model of the mesh. It holds the bus to its promises, and shows that a seed is a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field

from anchorwatch.bus.port import ConsumerSpec, Expect, Message, WrongLastSequence
from anchorwatch.core.errors import Unavailable
from anchorwatch.testing.bus import FaultKind, Faults, SimBus, SimServer, run
from anchorwatch.topology.streams import BucketSpec, Source, StreamSpec

FAMILY = "j.p.>"
BY_CHANCE = tuple(FaultKind)[: tuple(FaultKind).index(FaultKind.CUT)]


@dataclass
class Report:
    """What happened."""

    trace: list[str] = field(default_factory=list)
    wins: dict[int, list[str]] = field(default_factory=dict)
    """By the sequence that was expected: who was told that its write was stored."""
    counts: dict[FaultKind, int] = field(default_factory=dict)
    stored: list[tuple[int, str, str]] = field(default_factory=list)
    chain: list[int] = field(default_factory=list)
    """What each stored message expected to be the last."""
    handled: list[int] = field(default_factory=list)
    view_is_right: bool = False


def play(seed: int, *, rate: float = 0.05, writes: int = 12, writers: int = 3) -> Report:
    """One run."""
    report = Report()
    run(_main(seed, rate, writes, writers, report), seed)
    return report


async def _main(seed: int, rate: float, writes: int, writers: int, report: Report) -> None:
    faults = Faults(random.Random(f"faults {seed}"), dict.fromkeys(BY_CHANCE, rate))
    server = SimServer(faults=faults, seed=seed, latency_s=(0.0002, 0.002), trace=report.trace)
    setup = server.connect(name="setup")
    faults.enabled = False
    await setup.ensure_stream(StreamSpec("J", ("j.>",), atomic_batches=True))
    await setup.ensure_bucket(BucketSpec("view", sources=(Source("J", "j.p.*", "$KV.view.{{wildcard(1)}}"),)))
    faults.enabled = True
    chance = random.Random(f"scenario {seed}")
    async with asyncio.TaskGroup() as group:
        for number in range(writers):
            group.create_task(_write(server, f"w{number}", writes, report))
        readers = [group.create_task(_read(server, f"r{number}", report)) for number in range(2)]
        group.create_task(_disturb(server, chance))
        await asyncio.sleep(120)
        for reader in readers:
            reader.cancel()
    faults.enabled = False
    await _note_end(server, report)


async def _write(server: SimServer, name: str, writes: int, report: Report) -> None:
    bus = server.connect(name=name)
    for number in range(writes):
        if bus.link.killed:
            bus = server.connect(name=f"{name}+")
        await asyncio.sleep(0.3)
        with contextlib.suppress(Unavailable):
            page = await bus.last("J", [FAMILY])
            expected = page.messages[-1].sequence if page.messages else 0
            message = Message(
                f"j.p.{number % 3}", f"{name}/{number}".encode(), f"{name}-{number}", Expect(FAMILY, expected)
            )
            with contextlib.suppress(WrongLastSequence):
                ack = await bus.publish(message, timeout_s=2.0)
                if not ack.duplicate:
                    report.wins.setdefault(expected, []).append(name)


async def _read(server: SimServer, name: str, report: Report) -> None:
    while True:
        bus = server.connect(name=name)
        with contextlib.suppress(Unavailable):
            consumer = await bus.consumer(ConsumerSpec("J", ("j.>",), "readers", ack_wait_s=3.0))
            while True:
                for delivery in await consumer.fetch(4, timeout_s=5.0):
                    await asyncio.sleep(0.01)
                    report.handled.append(delivery.stored.sequence)
                    await delivery.ack()
        await bus.close()


async def _disturb(server: SimServer, chance: random.Random) -> None:
    """Cut, freeze and kill clients, and restart the server."""
    for _ in range(8):
        await asyncio.sleep(chance.uniform(0.05, 4.0))
        victim: SimBus = chance.choice(server.clients)
        what = chance.choice(("cut", "freeze", "kill", "restart"))
        if what == "restart":
            server.stop()
            await asyncio.sleep(chance.uniform(0.01, 1.0))
            server.start()
        elif what == "kill":
            victim.kill()
        else:
            (victim.cut if what == "cut" else victim.freeze)()
            await asyncio.sleep(chance.uniform(0.01, 6.0))
            (victim.reconnect if what == "cut" else victim.thaw)()


async def _note_end(server: SimServer, report: Report) -> None:
    end = server.connect(name="end")
    page = await end.range("J", "j.>", 1, 10_000)
    report.stored = [(each.sequence, each.subject, each.payload.decode()) for each in page.messages]
    report.chain = [int(each.headers["Nats-Expected-Last-Subject-Sequence"]) for each in page.messages]
    report.counts = dict(server.faults.counts)
    # What was delayed may still be on its way.
    await asyncio.sleep(60)
    consumer = await end.consumer(ConsumerSpec("J", ("j.>",), "readers", ack_wait_s=3.0))
    while deliveries := await consumer.fetch(100, timeout_s=10.0):
        for delivery in deliveries:
            report.handled.append(delivery.stored.sequence)
            await delivery.ack()
    bucket = await end.bucket("view")
    last = {subject.rpartition(".")[2]: payload for _, subject, payload in report.stored}
    seen = {key: await bucket.get(key) for key in await bucket.keys()}
    report.view_is_right = {key: entry.value.decode() for key, entry in seen.items() if entry} == last


def digest(seed: int) -> str:
    """A run in one line, to compare it with the same one in another process."""
    import hashlib  # noqa: PLC0415 - for the command line only

    return hashlib.sha256("\n".join(play(seed).trace).encode()).hexdigest()


__all__ = ["BY_CHANCE", "Report", "digest", "play"]
