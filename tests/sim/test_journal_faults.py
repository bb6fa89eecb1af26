"""Commits under lost requests, lost acks, late writes, refusals without a reason and stale reads.

Every commit that was answered stands exactly once; what was fenced does not stand.
"""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from anchorwatch.bus.port import Expect
from anchorwatch.core.errors import Fenced, Unavailable
from anchorwatch.journal.commit import Committer, Write
from anchorwatch.testing.bus import Faults, SimServer
from anchorwatch.testing.bus.faults import FaultKind
from anchorwatch.testing.bus.loop import run
from anchorwatch.topology.streams import STREAMS, journal_stream

FAMILY = "aw.journal.0.default.s.p.>"
RATES = {
    FaultKind.LOST_REQUEST: 0.05,
    FaultKind.LOST_ACK: 0.1,
    FaultKind.ZOMBIE_WRITE: 0.1,
    FaultKind.SPURIOUS_FENCE: 0.1,
    FaultKind.STALE_READ: 0.1,
    FaultKind.SLOW_CALL: 0.1,
}


@pytest.mark.parametrize("seed", range(40))
def test_acknowledged_commit_is_stored_exactly_once(seed: int) -> None:
    async def main() -> None:
        faults = Faults(random.Random(seed), RATES)
        server = SimServer(seed=seed, faults=faults, replicated=bool(seed % 2))
        outside = server.connect(name="outside")
        faults.enabled = False
        for spec in STREAMS:
            await outside.ensure_stream(spec)
        faults.enabled = True
        committed: list[bytes] = []
        refused: list[bytes] = []
        unknown: list[bytes] = []

        async def writer(name: str) -> None:
            bus = server.connect(name=name)
            committer = Committer(bus, journal_stream())
            head = 0
            for n in range(12):
                count = 1 + n % 3
                payloads = [f"{name}-{n}-{part}".encode() for part in range(count)]
                writes = [
                    Write(f"aw.journal.0.default.s.p.cmd.{part}", payload)
                    for part, payload in enumerate(payloads)
                ]
                try:
                    head = await committer.commit(writes, Expect(FAMILY, head))
                    committed.extend(payloads)
                except Fenced:
                    refused.extend(payloads)
                    with contextlib.suppress(Unavailable):
                        page = await bus.range(journal_stream(), FAMILY, 1, limit=1000)
                        head = page.messages[-1].sequence if page.messages else 0
                except Unavailable:
                    unknown.extend(payloads)

        await asyncio.gather(*(writer(f"w{n}") for n in range(3)))
        # Writes that are still on their way arrive, or do not.
        await asyncio.sleep(60)
        faults.enabled = False
        page = await outside.range(journal_stream(), FAMILY, 1, limit=1000)
        stored = [each.payload for each in page.messages]
        assert len(stored) == len(set(stored)), "nothing stands twice"
        assert set(committed) <= set(stored), "what was answered stands"
        assert not set(refused) & set(stored), "what was fenced does not stand"
        assert set(stored) <= set(committed) | set(unknown)
        assert committed, "somebody got through"

    run(main(), seed)


def test_shared_id_of_two_writers_is_no_success_on_replicas() -> None:
    """A replicated stream looks for the message id before it compares the fence, and answers `duplicate`."""

    async def main() -> None:
        bus = SimServer(replicated=True).connect(name="writer")
        for spec in STREAMS:
            await bus.ensure_stream(spec)
        one, two = (Committer(bus, journal_stream(), new_id=lambda: "shared") for _ in range(2))
        write = Write("aw.journal.0.default.s.p.log", b"mine")
        assert await one.commit([write], Expect(FAMILY, 0)) == 1
        assert await one.commit([write], Expect(FAMILY, 0)) == 1, "the same again is the same"
        with pytest.raises(Fenced):
            await two.commit([Write(write.subject, b"mine too")], Expect(FAMILY, 0))

    run(main())
