"""A lease has one leader at a time, which renews it by use; in virtual time on the simulated bus."""

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


def test_one_process_leads_while_it_renews() -> None:
    async def main() -> None:
        mesh = Mesh()
        (first, _), (second, _) = mesh.process("observer-1"), mesh.process("observer-2")
        for _ in range(30):
            assert await first.hold("probe")
            assert not await second.hold("probe")
            await asyncio.sleep(2)

    run(main())


def test_no_process_leads_without_the_bucket() -> None:
    async def main() -> None:
        mesh = Mesh()
        first, _ = mesh.process("observer-1")
        kept = mesh.server.streams.pop(bucket_stream(LEASES_BUCKET))
        assert not await first.hold("probe")
        mesh.server.streams[kept.spec.name] = kept
        assert await first.hold("probe")

    run(main())


def test_second_process_takes_over_from_a_dead_leader() -> None:
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


def test_leader_that_does_not_renew_loses_the_lease() -> None:
    async def main() -> None:
        mesh = Mesh()
        (first, _), (second, _) = mesh.process("observer-1"), mesh.process("observer-2")
        assert await first.hold("probe")
        await asyncio.sleep(LEASE_S + 1)
        assert await second.hold("probe")
        assert not await first.hold("probe")

    run(main())


def test_restarted_leader_resumes_at_once() -> None:
    async def main() -> None:
        mesh = Mesh()
        first, bus = mesh.process("observer-1", "a")
        assert await first.hold("probe")
        bus.kill()
        again, _ = mesh.process("observer-1", "b")
        assert await again.hold("probe")

    run(main())


def test_no_process_leads_without_the_bus() -> None:
    async def main() -> None:
        mesh = Mesh()
        first, _ = mesh.process("observer-1")
        assert await first.hold("probe")
        mesh.server.stop()
        await asyncio.sleep(LEASE_S / 2)
        assert not await first.hold("probe")

    run(main())


def test_released_lease_is_free() -> None:
    async def main() -> None:
        mesh = Mesh()
        (first, _), (second, _) = mesh.process("observer-1"), mesh.process("observer-2")
        assert await first.hold("probe")
        assert await first.hold("other")
        await first.release()
        assert await second.hold("probe")
        assert await second.hold("other")

    run(main())
