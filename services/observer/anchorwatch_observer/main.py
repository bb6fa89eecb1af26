"""The observer: routes events to sessions, answers how the world is, and looks by itself."""

from __future__ import annotations

import asyncio

from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.letters import DeadLetters
from anchorwatch.service.retries import DeadLetterRetrier
from anchorwatch.service.runtimes import PackRuntimes

from anchorwatch_observer.looking import Lookout
from anchorwatch_observer.probing import Probes
from anchorwatch_observer.routing import SERVICE, Router


async def run(context: ServiceContext) -> None:
    """Observe until told to stop."""
    agents = await AgentDirectory.open(context.bus)
    runtimes = PackRuntimes(context.bus)
    letters = DeadLetters(context)
    router = Router(context, agents, letters)
    retrier = DeadLetterRetrier(context, letters, router, SERVICE, f"dead-{SERVICE}")
    lookout = Lookout(context, agents, runtimes)
    answering = await lookout.listen()
    try:
        async with asyncio.TaskGroup() as work:
            work.create_task(router.run(), name="router")
            work.create_task(retrier.run(), name="letters")
            work.create_task(Probes(context, agents, runtimes, lookout).run(), name="probes")
    finally:
        await answering.close()
        await runtimes.close()
