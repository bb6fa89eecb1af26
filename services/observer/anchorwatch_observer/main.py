"""The observer: routes events to sessions, answers requests for observations, and probes for changes."""

from __future__ import annotations

import asyncio

from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.letters import DeadLetters
from anchorwatch.service.retries import DeadLetterRetrier
from anchorwatch.service.runtimes import PackRuntimes

from anchorwatch_observer.looking import Observations
from anchorwatch_observer.probing import ProbeIds, Prober
from anchorwatch_observer.routing import SERVICE, Router
from anchorwatch_observer.space import EventSpace


async def run(context: ServiceContext) -> None:
    """Run the observer until ``context.stopping``."""
    agents = await AgentDirectory.open(context.bus)
    runtimes = PackRuntimes(context.bus)
    letters = DeadLetters(context)
    ids = ProbeIds(context.bus)
    router = Router(context, agents, letters, ids)
    retrier = DeadLetterRetrier(context, letters, router, SERVICE, f"dead-{SERVICE}")
    observations = Observations(context, agents, runtimes)
    subscription = await observations.listen()
    try:
        async with asyncio.TaskGroup() as work:
            work.create_task(router.run(), name="router")
            work.create_task(retrier.run(), name="letters")
            work.create_task(EventSpace(context, router.counts).run(), name="space")
            work.create_task(Prober(context, agents, runtimes, observations, ids).run(), name="prober")
    finally:
        await subscription.close()
        await runtimes.close()
