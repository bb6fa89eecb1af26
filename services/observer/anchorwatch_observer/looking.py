"""Observes the real systems, and answers requests on ``aw.rpc.observe.<workspace>.<agent>``.

Each observation starts after its request: an agent that has just launched an instance must not receive an older state. Requests
that arrive during an observation share the next one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

from anchorwatch.bus.port import Subscription
from anchorwatch.core.errors import AnchorWatchError, Unavailable
from anchorwatch.core.facts import Observation
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.observations import encode_answer, encode_error
from anchorwatch.service.runtimes import PackRuntimes
from anchorwatch.topology.subjects import RPC_OBSERVE

OBSERVE_S_MAX = 3.0
"""The time limit of one observation by a pack."""
DEFINITION_AGE_S_MAX = 0.25
"""The maximum delay until a new version of an agent is used."""
QUEUE = "observer"


class Observations:
    """Observations for the agents of every workspace, one at a time for each agent."""

    def __init__(self, context: ServiceContext, agents: AgentDirectory, runtimes: PackRuntimes) -> None:
        self._context = context
        self._agents = agents
        self._runtimes = runtimes
        self._locks: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._next: dict[tuple[str, str], asyncio.Task[Observation]] = {}

    async def listen(self) -> Subscription:
        """Answer requests; the queue group delivers each request to one observer."""
        return await self._context.bus.subscribe(RPC_OBSERVE.filter(), self._answer, queue=QUEUE)

    async def observe(self, workspace: str, agent: str) -> Observation:
        """An observation by the agent's pack that starts after this call.

        Raises:
            Unavailable: the pack could not observe; the text says why.
        """
        key = (workspace, agent)
        task = self._next.get(key)
        if task is None:
            task = asyncio.create_task(self._observe_next(key), name=f"observe {workspace}/{agent}")
            self._next[key] = task
            task.add_done_callback(lambda ended: self._ended(key, ended))
        # A caller that is cancelled must not cancel the observation for the others.
        return await asyncio.shield(task)

    def _ended(self, key: tuple[str, str], task: asyncio.Task[Observation]) -> None:
        if self._next.get(key) is task:
            del self._next[key]
        if not task.cancelled():
            # Retrieve the error even if no caller waits any more.
            task.exception()

    async def _observe_next(self, key: tuple[str, str]) -> Observation:
        async with self._locks[key]:
            # It starts now: later callers wait for the one after it.
            del self._next[key]
            return await self._observe(*key)

    async def _observe(self, workspace: str, agent: str) -> Observation:
        try:
            async with asyncio.timeout(OBSERVE_S_MAX):
                spec = await self._agents.get(workspace, agent, age_max_s=DEFINITION_AGE_S_MAX)
                runtime = await self._runtimes.get(workspace, spec)
                return await runtime.observe()
        except TimeoutError:
            raise Unavailable(f"{agent}: the observation took longer than {OBSERVE_S_MAX:g} s") from None
        except AnchorWatchError as error:
            raise Unavailable(f"{agent}: {error.message}") from None
        except Exception as error:
            # A pack may raise any error.
            self._context.log.exception("observation.failed", workspace=workspace, agent=agent)
            raise Unavailable(f"{agent}: its pack failed: {type(error).__name__}") from None

    async def _answer(self, subject: str, _payload: bytes) -> bytes:
        tokens = RPC_OBSERVE.parse(subject)
        if tokens is None:
            return encode_error(f"{subject[:100]!r} does not name an agent")
        try:
            return encode_answer(await self.observe(tokens["workspace"], tokens["agent"]))
        except Unavailable as error:
            return encode_error(error.message)
