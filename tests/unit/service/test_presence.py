"""Which processes are proved dead, and which are only silent; in virtual time on the simulated bus."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from anchorwatch.service.context import Identity
from anchorwatch.service.presence import REPLACED_MAX, Presence
from anchorwatch.testing.bus import FaultKind, Faults, SimBus, SimServer, run
from anchorwatch.topology.streams import BUCKETS, LEASES_BUCKET, STREAMS, bucket_stream

LEASE_S = 6.0


class Mesh:
    """A server, and processes of the service ``executor`` on it."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.server = SimServer(faults=faults)
        self.buses: dict[str, SimBus] = {}
        for stream in STREAMS:
            self.server.ensure_stream(stream)
        for bucket in BUCKETS:
            self.server.ensure_bucket(bucket)

    async def start(self, instance: str, incarnation: str) -> Presence:
        bus = self.server.connect(name=incarnation)
        self.buses[incarnation] = bus
        identity = Identity("executor", instance, incarnation)
        presence = Presence(bus, identity, LEASE_S, monotonic=asyncio.get_running_loop().time)
        await presence.start()
        return presence

    def kill(self, incarnation: str) -> None:
        """As signal 9: it says nothing any more."""
        self.buses[incarnation].kill()


def simulate(main: Coroutine[Any, Any, None], seed: int = 0) -> None:
    run(main, seed)


def test_process_that_renews_stays_alive() -> None:
    async def main() -> None:
        mesh = Mesh()
        await mesh.start("executor-1", "a")
        other = await mesh.start("executor-2", "b")
        for _ in range(20):
            assert await other.alive("executor-1", "a") == "alive"
            await asyncio.sleep(LEASE_S)

    simulate(main())


def test_presence_recovers_from_a_missing_bucket() -> None:
    """A server of a cluster may say so, which has not heard of it yet."""

    async def main() -> None:
        mesh = Mesh()
        await mesh.start("executor-1", "a")
        other = await mesh.start("executor-2", "b")
        kept = mesh.server.streams.pop(bucket_stream(LEASES_BUCKET))
        await asyncio.sleep(LEASE_S)
        assert await other.alive("executor-1", "a") == "unknown"
        mesh.server.streams[kept.spec.name] = kept
        for _ in range(5):
            await asyncio.sleep(LEASE_S)
            assert await other.alive("executor-1", "a") == "alive"

    simulate(main())


def test_killed_process_is_gone_one_lease_after_the_query() -> None:
    async def main() -> None:
        mesh = Mesh()
        await mesh.start("executor-1", "a")
        other = await mesh.start("executor-2", "b")
        await asyncio.sleep(20)
        mesh.kill("a")
        assert await other.alive("executor-1", "a") == "alive"
        await asyncio.sleep(LEASE_S - 0.1)
        assert await other.alive("executor-1", "a") == "alive"
        await asyncio.sleep(0.2)
        assert await other.alive("executor-1", "a") == "gone"

    simulate(main())


def test_replaced_incarnation_is_dead_at_once() -> None:
    async def main() -> None:
        mesh = Mesh()
        await mesh.start("executor-1", "a")
        mesh.kill("a")
        again = await mesh.start("executor-1", "a2")
        other = await mesh.start("executor-2", "b")
        assert await other.alive("executor-1", "a") == "dead"
        assert await other.alive("executor-1", "a2") == "alive"
        assert await again.alive("executor-1", "a") == "dead"
        assert await again.alive("executor-1", "a2") == "alive"

    simulate(main())


def test_replaced_incarnation_does_not_call_its_successor_dead() -> None:
    async def main() -> None:
        mesh = Mesh()
        old = await mesh.start("executor-1", "a")
        new = await mesh.start("executor-1", "b")
        assert await new.alive("executor-1", "a") == "dead"
        assert await old.alive("executor-1", "b") == "alive"
        assert old.replaced.is_set()
        # The present holder of the name treats an incarnation that no entry names as a former one.
        assert await new.alive("executor-1", "long ago") == "dead"
        mesh.server.stop()
        assert await new.alive("executor-1", "another") == "unknown"

    simulate(main())


def test_process_that_recorded_its_end_is_dead_at_once() -> None:
    async def main() -> None:
        mesh = Mesh()
        first = await mesh.start("executor-1", "a")
        other = await mesh.start("executor-2", "b")
        await first.stop()
        assert await other.alive("executor-1", "a") == "dead"

    simulate(main())


def test_unknown_process_is_gone_only_after_a_lease() -> None:
    async def main() -> None:
        other = await Mesh().start("executor-2", "b")
        assert await other.alive("executor-9", "x") == "alive"
        await asyncio.sleep(LEASE_S + 0.1)
        assert await other.alive("executor-9", "x") == "gone"

    simulate(main())


def test_time_without_the_bus_proves_nothing() -> None:
    async def main() -> None:
        mesh = Mesh()
        await mesh.start("executor-1", "a")
        other = await mesh.start("executor-2", "b")
        assert await other.alive("executor-1", "a") == "alive"
        mesh.server.stop()
        assert await other.alive("executor-1", "a") == "unknown"
        await asyncio.sleep(10 * LEASE_S)
        mesh.server.start()
        # A process that could not renew meanwhile is never judged dead for that.
        for _ in range(40):
            assert await other.alive("executor-1", "a") == "alive"
            await asyncio.sleep(0.3)

    simulate(main())


def test_death_without_the_bus_is_noticed_a_lease_later() -> None:
    async def main() -> None:
        mesh = Mesh()
        await mesh.start("executor-1", "a")
        other = await mesh.start("executor-2", "b")
        assert await other.alive("executor-1", "a") == "alive"
        mesh.server.stop()
        mesh.kill("a")
        await asyncio.sleep(30)
        mesh.server.start()
        assert await other.alive("executor-1", "a") == "alive"
        await asyncio.sleep(2 * LEASE_S)
        assert await other.alive("executor-1", "a") == "gone"

    simulate(main())


def test_replaced_process_detects_it_and_leaves_the_entry() -> None:
    async def main() -> None:
        mesh = Mesh()
        stopped = await mesh.start("executor-1", "a")
        await mesh.start("executor-1", "a2")
        other = await mesh.start("executor-2", "b")
        async with asyncio.timeout(LEASE_S):
            await stopped.replaced.wait()
        await stopped.stop()
        await asyncio.sleep(2 * LEASE_S)
        assert await other.alive("executor-1", "a2") == "alive"
        assert await other.alive("executor-1", "a") == "dead"

    simulate(main())


def test_owner_rewrites_a_lost_entry() -> None:
    async def main() -> None:
        mesh = Mesh()
        first = await mesh.start("executor-1", "a")
        other = await mesh.start("executor-2", "b")
        bucket = await mesh.buses["b"].bucket("leases")
        await bucket.delete("presence.executor.executor-1")
        for _ in range(10):
            assert await other.alive("executor-1", "a") == "alive"
            await asyncio.sleep(LEASE_S / 3)
        assert not first.replaced.is_set()

    simulate(main())


def test_unlisted_former_incarnation_is_gone_after_a_lease() -> None:
    async def main() -> None:
        mesh = Mesh()
        for number in range(REPLACED_MAX + 4):
            await mesh.start("executor-1", f"a{number}")
            mesh.kill(f"a{number}")
        await mesh.start("executor-1", "now")
        other = await mesh.start("executor-2", "b")
        assert await other.alive("executor-1", f"a{REPLACED_MAX + 3}") == "dead"
        assert await other.alive("executor-1", "a0") == "alive"
        await asyncio.sleep(LEASE_S + 0.1)
        assert await other.alive("executor-1", "a0") == "gone"
        assert await other.alive("executor-1", "now") == "alive"

    simulate(main())


@pytest.mark.parametrize("seed", range(20))
def test_late_reads_prove_no_process_dead(seed: int) -> None:
    """A stale read may show the incarnation before: that must neither prove the present one dead nor end it."""

    async def main() -> None:
        mesh = Mesh(Faults(rates={FaultKind.STALE_KEY: 0.3}, stale_sequences_max=8))
        await mesh.start("executor-1", "a")
        mesh.kill("a")
        again = await mesh.start("executor-1", "a2")
        other = await mesh.start("executor-2", "b")
        for _ in range(200):
            assert await other.alive("executor-1", "a2") == "alive"
            await asyncio.sleep(0.5)
        assert not again.replaced.is_set()
        assert not other.replaced.is_set()

    simulate(main(), seed)


@pytest.mark.parametrize("seed", range(20))
def test_lost_answers_end_no_process(seed: int) -> None:
    async def main() -> None:
        mesh = Mesh(Faults(rates={FaultKind.LOST_ACK: 0.3}))
        mesh.server.faults.enabled = False
        first = await mesh.start("executor-1", "a")
        other = await mesh.start("executor-2", "b")
        mesh.server.faults.enabled = True
        for _ in range(100):
            assert await other.alive("executor-1", "a") in ("alive", "unknown")
            await asyncio.sleep(0.5)
        assert not first.replaced.is_set()

    simulate(main(), seed)
