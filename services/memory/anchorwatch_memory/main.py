"""Wires the memory service."""

from __future__ import annotations

import asyncio

from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.session.wakes import Windows
from anchorwatch.executor import PoolRunner
from anchorwatch.journal.artifacts import ArtifactJournal
from anchorwatch.packs.port import PackRuntime
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.letters import DeadLetters
from anchorwatch.service.retries import DeadLetterRetrier
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import JOURNAL_ALL, MEMORY_CONSUMER, RPC_MEMORY

from anchorwatch_memory.dead_letters import SERVICE, FaultReporter, RebuildRetry
from anchorwatch_memory.fold.effects import POOL
from anchorwatch_memory.follow import Follower
from anchorwatch_memory.projections import Projections, ThreadedProjections
from anchorwatch_memory.rpc import QueryHandler
from anchorwatch_memory.tools import MemoryTools

QUEUE = "memory"
CONCURRENCY = 16


async def run(context: ServiceContext) -> None:
    """Follow the journal, answer queries and run the pool `memory`, until ``context.stopping``."""
    path = context.settings.data_dir / "memory" / f"{context.identity.instance}.db"
    await run_on(context, ThreadedProjections(path))


async def run_on(context: ServiceContext, projections: Projections) -> None:
    """As `run`, on these projections. Closes them."""
    try:
        await _follow(context, projections)
    finally:
        await projections.close()


async def _follow(context: ServiceContext, projections: Projections) -> None:
    letters = DeadLetters(context)
    faults = FaultReporter(context.bus, journal_stream(), projections, letters)
    follower = Follower(
        context.bus,
        journal_stream(),
        JOURNAL_ALL,
        f"{MEMORY_CONSUMER}{context.identity.instance}",
        projections,
        context.clock,
        context.log,
        faults,
    )
    retry = RebuildRetry(follower, faults, letters)
    retrier = DeadLetterRetrier(
        context, letters, retry, SERVICE, f"dead-{SERVICE}-{context.identity.instance}"
    )
    await follower.start()
    queries = QueryHandler(projections, follower, _windows(context), context.log)
    subscription = await context.bus.subscribe(RPC_MEMORY.filter(), queries.handle, QUEUE)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(follower.run(context.stopping), name="follow")
            tasks.create_task(retrier.run(), name="letters")
            tasks.create_task((await _pool(context, projections, follower)).run(), name="pool memory")
    finally:
        await subscription.close()
        await follower.close()


async def _pool(context: ServiceContext, projections: Projections, follower: Follower) -> PoolRunner:
    stream = journal_stream()
    artifacts = ArtifactJournal(context.bus, context.committer, context.identity.execution_id)
    tools = MemoryTools(context.bus, stream, projections, follower, artifacts)

    async def runtime_for(_workspace: str, _agent: AgentSpec) -> PackRuntime:
        return tools

    agents = await AgentDirectory.open(context.bus)
    return PoolRunner(context, POOL, agents, runtime_for, concurrency=CONCURRENCY)


def _windows(context: ServiceContext) -> Windows:
    settings = context.settings
    return Windows(round(settings.debounce_p0_s * 1000), round(settings.debounce_p1_s * 1000))
