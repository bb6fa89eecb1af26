"""One leader at a time, as long as it asks. In virtual time, on the bus in memory."""

from __future__ import annotations

import asyncio

from anchorwatch.service.context import Identity
from anchorwatch.service.leases import Leases
from anchorwatch.testing.bus import SimBus, SimServer, run
from anchorwatch.topology.streams import BUCKETS, LEASES_BUCKET, STREAMS, bucket_stream

LEASE_S = 6.0


class Mesh:
    """A server, and processes that would like to lead."""

    def __init__(self) -> None:
        self.server = SimServer()
        for stream in STREAMS:
            self.server.ensure_stream(stream)
        for bucket in BUCKETS:
            self.server.ensure_bucket(bucket)

    def process(self, instance: str, incarnation: str = "a") -> tuple[Leases, SimBus]:
        bus = self.server.connect(name=instance)
        identity = Identity("observer", instance, incarnation)
        return Leases(bus, identity, LEASE_S, monotonic=asyncio.get_running_loop().time), bus


def test_one_leads_while_it_asks_and_the_other_does_not() -> None:
    async def main() -> None:
        mesh = Mesh()
        (first, _), (second, _) = mesh.process("observer-1"), mesh.process("observer-2")
        for _ in range(30):
            assert await first.hold("probe")
            assert not await second.hold("probe")
            await asyncio.sleep(2)

    run(main())


def test_while_the_bucket_is_not_there_nobody_leads() -> None:
    async def main() -> None:
        mesh = Mesh()
        first, _ = mesh.process("observer-1")
        kept = mesh.server.streams.pop(bucket_stream(LEASES_BUCKET))
        assert not await first.hold("probe")
        mesh.server.streams[kept.spec.name] = kept
        assert await first.hold("probe")

    run(main())


def test_the_other_takes_over_when_the_leader_dies() -> None:
    async def main() -> None:
        mesh = Mesh()
        (first, bus), (second, _) = mesh.process("observer-1"), mesh.process("observer-2")
        assert await first.hold("probe")
        bus.kill()
        waited_s = 0.0
        while not await second.hold("probe"):
            await asyncio.sleep(0.5)
            waited_s += 0.5
        assert LEASE_S - 1 <= waited_s <= LEASE_S + 1.5

    run(main())


def test_a_leader_that_did_not_ask_for_a_lease_finds_that_it_lost() -> None:
    async def main() -> None:
        mesh = Mesh()
        (first, _), (second, _) = mesh.process("observer-1"), mesh.process("observer-2")
        assert await first.hold("probe")
        await asyncio.sleep(LEASE_S + 1)
        assert await second.hold("probe")
        assert not await first.hold("probe")

    run(main())


def test_a_restarted_leader_goes_on_at_once() -> None:
    async def main() -> None:
        mesh = Mesh()
        first, bus = mesh.process("observer-1", "a")
        assert await first.hold("probe")
        bus.kill()
        again, _ = mesh.process("observer-1", "b")
        assert await again.hold("probe")

    run(main())


def test_nobody_leads_while_the_bus_is_away() -> None:
    async def main() -> None:
        mesh = Mesh()
        first, _ = mesh.process("observer-1")
        assert await first.hold("probe")
        mesh.server.stop()
        await asyncio.sleep(LEASE_S / 2)
        assert not await first.hold("probe")

    run(main())


def test_what_is_released_is_free() -> None:
    async def main() -> None:
        mesh = Mesh()
        (first, _), (second, _) = mesh.process("observer-1"), mesh.process("observer-2")
        assert await first.hold("probe")
        assert await first.hold("other")
        await first.release()
        assert await second.hold("probe")
        assert await second.hold("other")

    run(main())
