"""Looks at the real systems, once for all who ask at the same time, and answers ``aw.rpc.observe.<workspace>.<agent>``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from anchorwatch.bus.port import Subscription
from anchorwatch.core.errors import AnchorWatchError, Unavailable
from anchorwatch.core.facts import Observation
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.observations import answer, answer_error
from anchorwatch.service.runtimes import Runtimes
from anchorwatch.topology.subjects import RPC_OBSERVE

LOOK_S_MAX = 3.0
"""How long a pack may take to look."""
FRESH_S = 0.5
"""How old an observation may be that is given to another who asks."""
QUEUE = "observer"


@dataclass(frozen=True, slots=True)
class _Seen:
    at: float
    observation: Observation


class Lookout:
    """Observes for the agents of every workspace."""

    def __init__(
        self,
        context: ServiceContext,
        agents: AgentDirectory,
        runtimes: Runtimes,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._agents = agents
        self._runtimes = runtimes
        self._monotonic = monotonic
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._looking: dict[tuple[str, str], asyncio.Task[Observation]] = {}

    async def listen(self) -> Subscription:
        """Answer whoever asks; one observer of all answers each."""
        return await self._context.bus.subscribe(RPC_OBSERVE.filter(), self._answer, queue=QUEUE)

    async def look(self, workspace: str, agent: str) -> Observation:
        """What the agent's pack sees, not older than `FRESH_S`.

        Raises:
            Unavailable: it could not look, and why.
        """
        key = (workspace, agent)
        seen = self._seen.get(key)
        if seen is not None and self._monotonic() - seen.at < FRESH_S:
            return seen.observation
        looking = self._looking.get(key)
        if looking is None:
            looking = asyncio.create_task(self._look(workspace, agent), name=f"look {workspace}/{agent}")
            self._looking[key] = looking
            looking.add_done_callback(lambda task: self._looked(key, task))
        # One who gives up waiting must not take it from the others.
        return await asyncio.shield(looking)

    def _looked(self, key: tuple[str, str], task: asyncio.Task[Observation]) -> None:
        del self._looking[key]
        if not task.cancelled():
            # All who waited may have gone; a failure is told to those who have not.
            task.exception()

    async def _look(self, workspace: str, agent: str) -> Observation:
        began = self._monotonic()
        try:
            async with asyncio.timeout(LOOK_S_MAX):
                spec = await self._agents.get(workspace, agent)
                runtime = await self._runtimes.get(workspace, spec)
                observation = await runtime.observe()
        except TimeoutError:
            raise Unavailable(f"{agent}: looking took longer than {LOOK_S_MAX:g} s") from None
        except AnchorWatchError as error:
            raise Unavailable(f"{agent}: {error.message}") from None
        except Exception as error:
            # A pack may raise anything, although it should not.
            self._context.log.exception("an agent's pack cannot look", workspace=workspace, agent=agent)
            raise Unavailable(f"{agent}: its pack cannot look: {type(error).__name__}") from None
        self._seen[workspace, agent] = _Seen(began, observation)
        return observation

    async def _answer(self, subject: str, _payload: bytes) -> bytes:
        tokens = RPC_OBSERVE.parse(subject)
        if tokens is None:
            return answer_error(f"{subject[:100]!r} names no agent")
        try:
            return answer(await self.look(tokens["workspace"], tokens["agent"]))
        except Unavailable as error:
            return answer_error(error.message)
