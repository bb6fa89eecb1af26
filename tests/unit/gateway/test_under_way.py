from __future__ import annotations

import asyncio

import pytest
from anchorwatch.core.errors import Refused
from anchorwatch_gateway.under_way import UnderWay


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


async def begun(under_way: UnderWay, work: Work, count: int, what: str = "k") -> list[asyncio.Task[object]]:
    """So many that ask for the same thing, all of them waiting."""
    tasks: list[asyncio.Task[object]] = [
        asyncio.create_task(under_way.share(what, work.do)) for _ in range(count)
    ]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


async def test_the_same_request_asked_while_it_is_under_way_is_done_once_and_told_to_all() -> None:
    under_way, work = UnderWay(), Work()
    tasks = await begun(under_way, work, 5)
    other = await begun(under_way, work, 1, "another")
    work.go_on.set()
    assert await asyncio.gather(*tasks, *other) == [(7, False), *[(7, True)] * 4, (7, False)]
    assert work.begun == 2
    assert await under_way.share("k", work.do) == (7, False), "what is over is done anew"


async def test_whoever_began_it_may_go_away_and_the_others_are_answered_all_the_same() -> None:
    under_way, work = UnderWay(), Work()
    first, second = await begun(under_way, work, 2)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    work.go_on.set()
    assert await second == (7, True)
    assert work.begun == 1


async def test_what_it_raises_is_told_to_all_and_the_next_one_asks_anew() -> None:
    under_way, work = UnderWay(), Work(Refused("no"))
    tasks = await begun(under_way, work, 3)
    work.go_on.set()
    told = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(each) for each in told] == ["no"] * 3
    assert await under_way.share("k", _seven) == (7, False)


async def _seven() -> int:
    return 7
