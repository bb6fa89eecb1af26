"""The sources of the fleet's facts: the yard (instances) and the queue (jobs, results). A silent source gives None."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from anchorwatch.packs import AnchorWatchError, Bus

from anchorwatch_fleet.client import YardClient
from anchorwatch_fleet.instances import Instance
from anchorwatch_fleet.subjects import JOBS, RESULTS

LOOK_S_MAX = 2.0
AGAIN_S = 0.2

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Queue:
    """The work queue. ``tasks``: jobs without a result, in work or not. ``last_sequence``: grows with each job added."""

    tasks: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class Sources:
    """The answer of each source; None: no answer."""

    instances: tuple[Instance, ...] | None
    queue: Queue | None
    jobs_done: int | None


async def look(bus: Bus, timeout_s: float = LOOK_S_MAX) -> Sources:
    """Query all sources at once, each within ``timeout_s``; a silent one does not delay or hide the others."""
    yard = YardClient(bus)

    async def instances() -> tuple[Instance, ...]:
        return tuple(await yard.instances(timeout_s))

    async def queue() -> Queue:
        state = await bus.stream_state(JOBS)
        return Queue(state.messages, state.last_sequence)

    async def jobs_done() -> int:
        return (await bus.stream_state(RESULTS)).messages

    told = await asyncio.gather(
        _within(timeout_s, instances), _within(timeout_s, queue), _within(timeout_s, jobs_done)
    )
    return Sources(*told)


async def _within(timeout_s: float, ask: Callable[[], Awaitable[_T]]) -> _T | None:
    """The answer, with a retry after a quick failure; None: no answer in time."""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    return await ask()
                except AnchorWatchError:
                    # A source that is starting answers in a moment.
                    await asyncio.sleep(AGAIN_S)
    except TimeoutError:
        return None
