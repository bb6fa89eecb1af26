"""Many commits at once: they go together, and each is what it would have been alone."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict

import pytest
from anchorwatch.bus.port import Expect
from anchorwatch.core.errors import Fenced, Unavailable
from anchorwatch.journal.commit import Committer, Write
from anchorwatch.testing.bus import Faults, SimServer
from anchorwatch.testing.bus.faults import FaultKind
from anchorwatch.testing.bus.loop import run
from anchorwatch.topology.streams import STREAMS, journal_stream

FAMILIES = 40
ROUNDS = 6
RATES = {
    FaultKind.LOST_REQUEST: 0.05,
    FaultKind.LOST_ACK: 0.1,
    FaultKind.ZOMBIE_WRITE: 0.1,
    FaultKind.SPURIOUS_FENCE: 0.1,
    FaultKind.STALE_READ: 0.1,
    FaultKind.SLOW_CALL: 0.1,
}


def family(number: int) -> str:
    return f"aw.journal.0.default.s{number}.p.>"


async def write(committer: Committer, number: int, payload: bytes, head: int) -> int:
    writes = [Write(f"aw.journal.0.default.s{number}.p.log", payload)]
    return await committer.commit(writes, Expect(family(number), head))


@pytest.mark.parametrize("seed", range(20))
def test_family_has_each_acknowledged_record_once_in_order(seed: int) -> None:
    async def main() -> None:
        faults = Faults(random.Random(seed), RATES)
        server = SimServer(seed=seed, faults=faults, replicated=bool(seed % 2))
        outside = server.connect(name="outside")
        faults.enabled = False
        for spec in STREAMS:
            await outside.ensure_stream(spec)
        faults.enabled = True
        committer = Committer(server.connect(name="writer"), journal_stream())
        committed: defaultdict[int, list[bytes]] = defaultdict(list)

        async def writer(number: int) -> None:
            head = 0
            for n in range(ROUNDS):
                payload = f"{number}-{n}".encode()
                # One of many is asked for behind what is not the last record, and must not hold up the others.
                stale = head and (number + n) % 13 == 0
                try:
                    at = await write(committer, number, payload, head - 1 if stale else head)
                except Fenced:
                    assert stale
                    continue
                except Unavailable:
                    return
                assert not stale
                head = at
                committed[number].append(payload)

        await asyncio.gather(*(writer(number) for number in range(FAMILIES)))
        await asyncio.sleep(60)
        faults.enabled = False
        for number in range(FAMILIES):
            page = await outside.range(journal_stream(), family(number), 1)
            stored = [each.payload for each in page.messages]
            assert stored[: len(committed[number])] == committed[number]
            assert len(stored) <= len(committed[number]) + 1, "beyond that, only what nobody was told of"
        assert sum(map(len, committed.values())) > FAMILIES

    run(main(), seed)


def test_commit_to_a_family_is_sent_once_the_previous_has_ended() -> None:
    """Those that were asked for on the same record are refused, whichever else stood between them in the queue."""

    async def main() -> None:
        server = SimServer()
        bus = server.connect(name="writer")
        for spec in STREAMS:
            await bus.ensure_stream(spec)
        committer = Committer(bus, journal_stream())
        asked: defaultdict[int, list[int]] = defaultdict(list)
        stands: dict[int, int] = {}

        async def ask(number: int, n: int) -> None:
            asked[number].append(n)
            with contextlib.suppress(Fenced):
                await write(committer, number, f"{n}".encode(), 0)
                assert stands.setdefault(number, n) == n, "one of them"

        await asyncio.gather(*(ask(number, n) for n in range(3) for number in range(FAMILIES)))
        assert stands == {number: order[0] for number, order in asked.items()}
        assert len(stands) == FAMILIES

    run(main(), 1)


@pytest.mark.parametrize("seed", range(10))
def test_abandoned_commit_takes_no_other_with_it(seed: int) -> None:
    async def main() -> None:
        chance = random.Random(seed)
        server = SimServer(seed=seed, faults=Faults(chance, {FaultKind.SLOW_CALL: 0.3}))
        bus = server.connect(name="writer")
        for spec in STREAMS:
            await bus.ensure_stream(spec)
        committer = Committer(bus, journal_stream())
        tasks = [
            asyncio.create_task(write(committer, number, f"{number}".encode(), 0)) for number in range(80)
        ]
        given_up = chance.sample(tasks, 15)
        for task in given_up:
            await asyncio.sleep(chance.choice([0, 0, 0.001, 0.05]))
            task.cancel()
        for number, task in enumerate(tasks):
            with contextlib.suppress(asyncio.CancelledError):
                at = await task
                page = await bus.range(journal_stream(), family(number), 1)
                assert [(each.sequence, each.payload) for each in page.messages] == [
                    (at, f"{number}".encode())
                ]
        assert sum(task.cancelled() for task in tasks) <= len(given_up)
        # It goes on as if nothing had been.
        assert await write(committer, 99, b"after", 0) > 0

    run(main(), seed)
