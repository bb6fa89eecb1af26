"""What the requests of one gateway share in memory."""

from __future__ import annotations

import asyncio

import pytest
from anchorwatch.core.errors import Refused, Unavailable
from anchorwatch_gateway.state import HighWaterMark, SingleFlight, StreamLimit


class Work:
    """Something that takes until it is let go on, and counts how often it was begun."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun = 0
        self.go_on = asyncio.Event()
        self._error = error

    async def do(self) -> int:
        self.begun += 1
        await self.go_on.wait()
        if self._error:
            raise self._error
        return 7


async def begun(flights: SingleFlight, work: Work, count: int, what: str = "k") -> list[asyncio.Task[object]]:
    """So many that ask for the same thing, all of them waiting."""
    tasks: list[asyncio.Task[object]] = [
        asyncio.create_task(flights.run(what, work.do)) for _ in range(count)
    ]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


async def test_identical_requests_in_flight_run_once() -> None:
    flights, work = SingleFlight(), Work()
    tasks = await begun(flights, work, 5)
    other = await begun(flights, work, 1, "another")
    work.go_on.set()
    assert await asyncio.gather(*tasks, *other) == [(7, False), *[(7, True)] * 4, (7, False)]
    assert work.begun == 2
    assert await flights.run("k", work.do) == (7, False), "a finished call is not reused"


async def test_flight_survives_the_caller_that_started_it() -> None:
    flights, work = SingleFlight(), Work()
    first, second = await begun(flights, work, 2)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    work.go_on.set()
    assert await second == (7, True)
    assert work.begun == 1


async def test_error_reaches_all_callers_and_is_not_cached() -> None:
    flights, work = SingleFlight(), Work(Refused("no"))
    tasks = await begun(flights, work, 3)
    work.go_on.set()
    answer = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(each) for each in answer] == ["no"] * 3
    assert await flights.run("k", _seven) == (7, False)


async def _seven() -> int:
    return 7


def test_high_water_mark_only_rises() -> None:
    seen = HighWaterMark()
    for sequence in (3, 1, 7, 2):
        seen.note(sequence)
    assert seen.sequence == 7


def test_live_streams_are_bounded() -> None:
    streams = StreamLimit(open_max=2)
    for _ in range(2):
        streams.check()
        streams.open()
    with pytest.raises(Unavailable):
        streams.check()
    streams.close()
    streams.check()
