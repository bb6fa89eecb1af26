"""The executor: runs the decided commands of the pools that its settings name, each effect at most once.

What runs them is the shared package `anchorwatch.executor`, since the memory service runs a pool too. Read its module
`pipeline` first.
"""

from __future__ import annotations

import asyncio

from anchorwatch.executor import PoolRunner
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.runtimes import PackRuntimes


async def run(context: ServiceContext) -> None:
    """Execute every pool that the settings name, until the service stops."""
    agents = await AgentDirectory.open(context.bus)
    runtimes = PackRuntimes(context.bus)
    concurrency = context.settings.executor_concurrency
    try:
        async with asyncio.TaskGroup() as pools:
            for pool in context.settings.pools:
                runner = PoolRunner(context, pool, agents, runtimes.get, concurrency=concurrency)
                pools.create_task(runner.run(), name=f"pool {pool}")
    finally:
        await runtimes.close()
