"""The memory service: keeps what can be rebuilt from the journal, answers from it, and remembers."""

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

from anchorwatch_memory.answers import Answers
from anchorwatch_memory.faults import SERVICE, Faults
from anchorwatch_memory.fold.memories import POOL
from anchorwatch_memory.follow import Follower
from anchorwatch_memory.port import InThreads, Projections
from anchorwatch_memory.rebuilding import Rebuilding
from anchorwatch_memory.tools import MemoryTools

QUEUE = "memory"
CONCURRENCY = 16


async def run(context: ServiceContext) -> None:
    """Follow the journal, answer questions, and run the pool `memory`, until told to stop."""
    path = context.settings.data_dir / "memory" / f"{context.identity.instance}.db"
    await run_on(context, InThreads(path))


async def run_on(context: ServiceContext, projections: Projections) -> None:
    """As `run`, on projections that are given."""
    letters = DeadLetters(context)
    faults = Faults(context.bus, journal_stream(), projections, letters)
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
    rebuilding = Rebuilding(follower, faults, letters)
    retrier = DeadLetterRetrier(
        context, letters, rebuilding, SERVICE, f"dead-{SERVICE}-{context.identity.instance}"
    )
    await follower.start()
    answers = Answers(projections, follower, _windows(context), context.log)
    asked = await context.bus.subscribe(RPC_MEMORY.filter(), answers.handle, QUEUE)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(follower.run(context.stopping), name="follow")
            tasks.create_task(retrier.run(), name="letters")
            tasks.create_task((await _pool(context, projections, follower)).run(), name="pool memory")
    finally:
        await asked.close()
        await follower.close()
        await projections.close()


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
