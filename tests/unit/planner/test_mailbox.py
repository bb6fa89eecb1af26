"""Which messages a mailbox keeps in hand while a pass runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

import structlog
from anchorwatch.core.names import SessionRef
from anchorwatch.service.worker import Done
from anchorwatch_planner.mailbox import WAITING_MAX, Answer, FairSemaphore, Mailboxes
from anchorwatch_planner.takeover import Cause, CauseKind
from anchorwatch_planner.turn import PassResult

REF = SessionRef("default", "s")
BURST = 3 * WAITING_MAX


class Passes:
    """Mailboxes whose first pass lasts until `release`."""

    def __init__(self) -> None:
        self.began, self.release = asyncio.Event(), asyncio.Event()
        self.seen: list[list[Cause]] = []
        self._boxes = Mailboxes(
            self._plan, structlog.stdlib.get_logger(), slots=FairSemaphore(1, 1), random=Random(0)
        )

    async def _plan(self, _: SessionRef, causes: Sequence[Cause]) -> PassResult:
        self.seen.append(list(causes))
        self.began.set()
        await self.release.wait()
        return Done()

    def arrive(self, sequence: int, attempt: int = 1, kind: CauseKind = "in") -> asyncio.Task[Answer]:
        return asyncio.create_task(self._boxes.handle(REF, Cause(kind, sequence, attempt)))

    @staticmethod
    @asynccontextmanager
    async def running() -> AsyncIterator[Passes]:
        passes = Passes()
        first = passes.arrive(1)
        await passes.began.wait()
        yield passes
        passes.release.set()
        assert await first == Done()
        await passes._boxes.close()


async def settle(tasks: Sequence[asyncio.Task[Answer]]) -> list[bool]:
    for _ in range(10):
        await asyncio.sleep(0)
    return [task.done() for task in tasks]


async def test_burst_leaves_the_newest_inputs_in_hand() -> None:
    async with Passes.running() as passes:
        burst = [passes.arrive(sequence) for sequence in range(2, 2 + BURST)]
        assert await settle(burst) == [True] * (BURST - WAITING_MAX) + [False] * WAITING_MAX
        passes.release.set()
        assert await asyncio.gather(*burst) == [Done()] * BURST
        assert [cause.sequence for cause in passes.seen[1]] == [*range(2 + BURST - WAITING_MAX, 2 + BURST)]


async def test_burst_acks_no_redelivered_input() -> None:
    """A redelivered message may be the one that a turn's holder has: its evidence for a takeover (INV-502)."""
    async with Passes.running() as passes:
        redelivered = [passes.arrive(2, attempt=2), passes.arrive(3, attempt=7)]
        burst = [passes.arrive(sequence) for sequence in range(4, 4 + BURST)]
        assert await settle(redelivered) == [False, False]
        assert sum(await settle(burst)) == BURST - WAITING_MAX
        passes.release.set()
        await asyncio.gather(*redelivered, *burst)
        assert [cause.sequence for cause in passes.seen[1]][:2] == [2, 3]


async def test_burst_acks_no_outcome() -> None:
    async with Passes.running() as passes:
        outcomes = [passes.arrive(sequence, kind="done") for sequence in range(2, 2 + BURST)]
        assert await settle(outcomes) == [False] * BURST
        passes.release.set()
        await asyncio.gather(*outcomes)
        assert len(passes.seen[1]) == BURST
