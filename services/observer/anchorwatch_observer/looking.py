"""Looks at the real systems, and answers ``aw.rpc.observe.<workspace>.<agent>``.

What is answered was looked at after it was asked for: an agent that has just launched something must not be shown the
world before. Those who ask while a look is under way share the next one.
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

LOOK_S_MAX = 3.0
"""How long a pack may take to look."""
DEFINITION_AGE_S_MAX = 0.25
"""An agent's new version is looked for with this long after it was applied, at the latest."""
QUEUE = "observer"


class Lookout:
    """Observes for the agents of every workspace."""

    def __init__(self, context: ServiceContext, agents: AgentDirectory, runtimes: PackRuntimes) -> None:
        self._context = context
        self._agents = agents
        self._runtimes = runtimes
        self._turns: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._next: dict[tuple[str, str], asyncio.Task[Observation]] = {}

    async def listen(self) -> Subscription:
        """Answer whoever asks; one observer of all answers each."""
        return await self._context.bus.subscribe(RPC_OBSERVE.filter(), self._answer, queue=QUEUE)

    async def look(self, workspace: str, agent: str) -> Observation:
        """What the agent's pack sees, looked at after this call began.

        Raises:
            Unavailable: it could not look, and why.
        """
        key = (workspace, agent)
        look = self._next.get(key)
        if look is None:
            look = asyncio.create_task(self._look_next(key), name=f"look {workspace}/{agent}")
            self._next[key] = look
            look.add_done_callback(lambda task: self._ended(key, task))
        # One who gives up waiting must not take it from the others.
        return await asyncio.shield(look)

    def _ended(self, key: tuple[str, str], task: asyncio.Task[Observation]) -> None:
        if self._next.get(key) is task:
            del self._next[key]
        if not task.cancelled():
            # All who waited may have gone; a failure is told to those who have not.
            task.exception()

    async def _look_next(self, key: tuple[str, str]) -> Observation:
        async with self._turns[key]:
            # It begins: whoever asks from here on waits for the one after it.
            del self._next[key]
            return await self._look(*key)

    async def _look(self, workspace: str, agent: str) -> Observation:
        try:
            async with asyncio.timeout(LOOK_S_MAX):
                spec = await self._agents.get(workspace, agent, age_max_s=DEFINITION_AGE_S_MAX)
                runtime = await self._runtimes.get(workspace, spec)
                return await runtime.observe()
        except TimeoutError:
            raise Unavailable(f"{agent}: looking took longer than {LOOK_S_MAX:g} s") from None
        except AnchorWatchError as error:
            raise Unavailable(f"{agent}: {error.message}") from None
        except Exception as error:
            # A pack may raise anything, although it should not.
            self._context.log.exception("an agent's pack cannot look", workspace=workspace, agent=agent)
            raise Unavailable(f"{agent}: its pack cannot look: {type(error).__name__}") from None

    async def _answer(self, subject: str, _payload: bytes) -> bytes:
        tokens = RPC_OBSERVE.parse(subject)
        if tokens is None:
            return encode_error(f"{subject[:100]!r} names no agent")
        try:
            return encode_answer(await self.look(tokens["workspace"], tokens["agent"]))
        except Unavailable as error:
            return encode_error(error.message)
