"""The slots of passes are shared fairly among workspaces."""

from __future__ import annotations

import asyncio

from anchorwatch_planner.mailbox import FairSemaphore


class Desk:
    """Those who want a slot, and in which order they had one."""

    def __init__(self, slots: FairSemaphore) -> None:
        self._slots = slots
        self.had: list[str] = []
        self.may_go = asyncio.Event()

    async def look(self, name: str) -> None:
        async with self._slots.of(name.partition("/")[0]):
            self.had.append(name)
            await self.may_go.wait()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_one_workspace_leaves_slots_to_another() -> None:
    desk = Desk(FairSemaphore(4, 3))
    tasks = [asyncio.create_task(desk.look(f"a/{n}")) for n in range(10)]
    await settle()
    assert desk.had == ["a/0", "a/1", "a/2"]
    tasks.append(asyncio.create_task(desk.look("b/0")))
    await settle()
    assert desk.had[3:] == ["b/0"]
    desk.may_go.set()
    await asyncio.gather(*tasks)
    assert len(desk.had) == 11


async def test_waiting_workspaces_are_served_in_turn() -> None:
    desk = Desk(FairSemaphore(1, 1))
    wanted = [*(f"a/{n}" for n in range(4)), "b/0", "b/1", "c/0"]
    tasks = [asyncio.create_task(desk.look(name)) for name in wanted]
    await settle()
    desk.may_go.set()
    await asyncio.gather(*tasks)
    assert desk.had == ["a/0", "a/1", "b/0", "c/0", "a/2", "b/1", "a/3"]


async def test_cancelled_waiter_leaves_its_slot_to_others() -> None:
    desk = Desk(FairSemaphore(1, 1))
    holder, waiting, other = (asyncio.create_task(desk.look(name)) for name in ("a/0", "a/1", "a/2"))
    await settle()
    waiting.cancel()
    holder.cancel()
    await settle()
    assert desk.had == ["a/0", "a/2"]
    desk.may_go.set()
    await other
