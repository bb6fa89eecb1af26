"""Writers behind one record go one after the other, and nobody who leaves holds the others up."""

from __future__ import annotations

import asyncio

import pytest
from anchorwatch.core.errors import Unavailable
from anchorwatch.journal.lanes import Lanes
from anchorwatch.testing.bus.loop import run as run_virtual

WORK_S = 1.0


async def come(lanes: Lanes, what: str, within_s: float = 60.0) -> asyncio.Task[float]:
    """Somebody who is alone at it for a second, and says when that began; whoever comes next is behind."""

    async def work() -> float:
        async with lanes.turn(what, within_s):
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(WORK_S)
            return began

    task = asyncio.create_task(work())
    await asyncio.sleep(0.01)
    return task


def test_waiters_of_one_record_run_in_order_beside_other_records() -> None:
    async def main() -> None:
        lanes, at = Lanes(), asyncio.get_running_loop().time()
        coming = [await come(lanes, what) for what in ("a", "a", "b", "a")]
        assert [round(await each - at) for each in coming] == [0, 1, 0, 2]

    run_virtual(main())


def test_waiter_that_times_out_or_cancels_leaves_the_lane_free() -> None:
    async def main() -> None:
        lanes, at = Lanes(), asyncio.get_running_loop().time()
        await come(lanes, "a")
        given_up = await come(lanes, "a")
        late = await come(lanes, "a", within_s=WORK_S / 2)
        last = await come(lanes, "a")
        given_up.cancel()
        with pytest.raises(Unavailable, match="many order the same thing at once"):
            await late
        assert round(await last - at) == 1
        assert lanes._lanes == {}, "nothing is left behind"  # noqa: SLF001

    run_virtual(main())


def test_fault_within_a_turn_ends_it() -> None:
    async def main() -> None:
        lanes = Lanes()
        with pytest.raises(ZeroDivisionError):
            async with lanes.turn("a", WORK_S):
                raise ZeroDivisionError
        await (await come(lanes, "a", within_s=WORK_S / 2))

    run_virtual(main())
